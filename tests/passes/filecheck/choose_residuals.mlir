// RUN: baechi-opt %s --pass-pipeline=choose-residuals --split-input-file | filecheck %s

// Both sin(x @ w) and cos(x @ w) are kept; one value, x @ w, makes both. The copies stand before
// their reader, in the backward pass; the forward operation that only it read is gone.
// CHECK:      %[[D:.+]] = "jax.dot_general"
// CHECK-NEXT: %[[S:.+]] = "jax.sin"(%[[D]])
// CHECK-NEXT: "jax.reduce_sum"
// CHECK-NEXT: %[[C:.+]] = "jax.cos"(%[[D]]) {{.*}} loc("transpose(jvp(f))/rematted_computation"("f.py":2:1))
// CHECK-NEXT: %[[S2:.+]] = "jax.sin"(%[[D]]) {{.*}} loc("transpose(jvp(f))/rematted_computation"("f.py":1:1))
// CHECK-NEXT: "jax.mul"(%[[C]], %[[S2]])
// CHECK:      baechi.residual_bytes_before = 256 : i64, baechi.residual_bytes_after = 128 : i64
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>):
    %0 = "jax.dot_general"(%x, %w) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("jvp(f)"("f.py":1:1))
    %1 = "jax.sin"(%0) {accuracy = #baechi.none} : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("jvp(f)"("f.py":1:1))
    %2 = "jax.cos"(%0) {accuracy = #baechi.none} : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("jvp(f)"("f.py":2:1))
    %3 = "jax.reduce_sum"(%1) {axes = [0, 1]} : (tensor<4x8xf32>) -> tensor<f32> loc("jvp(f)"("f.py":3:1))
    %4 = "jax.mul"(%2, %1) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("transpose(jvp(f))"("f.py":2:1))
    "func.return"(%3, %4) : (tensor<f32>, tensor<4x8xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4x8xf32>, tensor<8x8xf32>) -> (tensor<f32>, tensor<4x8xf32>)} : () -> ()
}) : () -> ()

// -----
// Random bits, effects, and what a barrier keeps are never computed again; an argument costs
// nothing to keep.
// CHECK:      %[[B:.+]] = "jax.random_bits"
// CHECK-NEXT: %[[S:.+]] = "jax.sin"
// CHECK-NEXT: %[[K:.+]] = "jax.optimization_barrier"(%[[S]])
// CHECK-NEXT: %[[N:.+]] = "jax.neg"({{.*}}rematted_computation
// CHECK-NEXT: "jax.add"(%[[B]], %[[N]]) {{.*}}transpose
// CHECK-NEXT: "jax.add"(%[[K]], %
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%k: tensor<!baechi.key<"fry">>, %x: tensor<8xui32>, %y: tensor<8xf32>):
    %0 = "jax.random_bits"(%k) {bit_width = 32 : i64, shape = [8]} : (tensor<!baechi.key<"fry">>) -> tensor<8xui32> loc("jvp()"("f.py":1:1))
    %1 = "jax.neg"(%x) : (tensor<8xui32>) -> tensor<8xui32> loc("jvp()"("f.py":2:1))
    %2 = "jax.sin"(%y) : (tensor<8xf32>) -> tensor<8xf32> loc("jvp()"("f.py":3:1))
    %3 = "jax.optimization_barrier"(%2) : (tensor<8xf32>) -> tensor<8xf32> loc("transpose(jvp())"("f.py":4:1))
    %4 = "jax.add"(%0, %1) : (tensor<8xui32>, tensor<8xui32>) -> tensor<8xui32> loc("transpose(jvp())"("f.py":5:1))
    %5 = "jax.add"(%3, %y) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> loc("transpose(jvp())"("f.py":6:1))
    "func.return"(%4, %5) : (tensor<8xui32>, tensor<8xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<!baechi.key<"fry">>, tensor<8xui32>, tensor<8xf32>) -> (tensor<8xui32>, tensor<8xf32>)} : () -> ()
}) : () -> ()
