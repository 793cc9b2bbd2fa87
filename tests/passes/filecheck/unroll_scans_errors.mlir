// RUN: not baechi-opt --pass-pipeline='unroll-scans{share=0}' %s 2>&1 | filecheck %s
// RUN: not baechi-opt --pass-pipeline='unroll-scans{arguments=[v]}' %s 2>&1 | filecheck --check-prefix=NAME %s
// RUN: not baechi-opt --pass-pipeline='unroll-scans{when=often}' %s 2>&1 | filecheck --check-prefix=WHEN %s

// CHECK: train.py:7: 'jax.scan' needs the attribute 'num_carry', an integer; found None
// NAME:  no argument is named 'v'
// WHEN:  when=often is not known; there are: auto, always, never

"builtin.module"() ({
  "func.func"() ({
  ^bb0(%h: tensor<4xf32>, %w: tensor<3x4xf32>):
    %0 = "jax.scan"(%h, %w) ({
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %1 = "jax.mul"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%1) : (tensor<4xf32>) -> ()
    }) {length = 3 : i64, num_consts = 0 : i64} : (tensor<4xf32>, tensor<3x4xf32>) -> tensor<4xf32> loc("train.py":7:2)
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>, tensor<3x4xf32>) -> tensor<4xf32>} : () -> ()
}) : () -> ()
