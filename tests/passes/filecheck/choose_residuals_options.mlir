// RUN: baechi-opt %s --pass-pipeline=choose-residuals{enabled=false} | filecheck %s --check-prefix=OFF
// RUN: baechi-opt %s --pass-pipeline=choose-residuals | filecheck %s --check-prefix=DEFAULT
// RUN: baechi-opt %s "--pass-pipeline=choose-residuals{cheap=[transpose]}" | filecheck %s --check-prefix=TRANSPOSE
// RUN: not baechi-opt %s "--pass-pipeline=choose-residuals{cheap=[magic]}" 2>&1 | filecheck %s --check-prefix=ERROR

// OFF-NOT: rematted_computation
// OFF-NOT: residual_bytes
// DEFAULT-NOT: rematted_computation
// DEFAULT: baechi.residual_bytes_before = 256 : i64, baechi.residual_bytes_after = 256 : i64
// TRANSPOSE: "jax.transpose"{{.*}}rematted_computation
// TRANSPOSE: baechi.residual_bytes_before = 256 : i64, baechi.residual_bytes_after = 128 : i64
// ERROR: cheap=magic is not known; there are: broadcast, convert, elementwise, reduce, reshape, slice, transpose
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>):
    %0 = "jax.dot_general"(%x, %w) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("jvp(f)"("f.py":1:1))
    %1 = "jax.transpose"(%0) {permutation = [1, 0]} : (tensor<4x8xf32>) -> tensor<8x4xf32> loc("jvp(f)"("f.py":1:1))
    %2 = "jax.dot_general"(%0, %1) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> loc("transpose(jvp(f))"("f.py":2:1))
    "func.return"(%2) : (tensor<4x4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x4xf32>} : () -> ()
}) : () -> ()
