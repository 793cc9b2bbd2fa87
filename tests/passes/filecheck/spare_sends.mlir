// RUN: baechi-opt %s --pass-pipeline=spare-sends --no-locations | filecheck %s

// Device 1 reads the product and its relu: it is sent the product and makes the relu itself, which
// nobody reads on device 0 any more.

// CHECK: %[[PRODUCT:.*]] = "baechi.task"(%x)
// CHECK: "jax.dot_general"
// CHECK-NEXT: "baechi.yield"
// CHECK-NEXT: }) {sym_name = "a", baechi.devices = [0]
// CHECK: "baechi.task"(%[[PRODUCT]])
// CHECK-NEXT: ^bb0(%[[INNER:.*]]: tensor<64x64xf32>):
// CHECK-NEXT: %[[ZERO:.*]] = "baechi.literal"
// CHECK-NEXT: %[[RELU:.*]] = "jax.max"(%[[INNER]], %[[ZERO]])
// CHECK-NEXT: "jax.dot_general"(%[[RELU]], %[[INNER]])
// CHECK: }) {sym_name = "b", baechi.devices = [1]
// CHECK: baechi.spared_bytes = 16384
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<64x64xf32>):
    %a:2 = "baechi.task"(%x) ({
    ^bb0(%p: tensor<64x64xf32>):
      %zero = "baechi.literal"() {value = 0.0 : f32} : () -> tensor<f32>
      %z = "jax.dot_general"(%p, %p) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      %h = "jax.max"(%z, %zero) : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
      "baechi.yield"(%z, %h) : (tensor<64x64xf32>, tensor<64x64xf32>) -> ()
    }) {sym_name = "a", baechi.devices = [0], baechi.cost = #baechi.cost<seconds = [1.0e-03]>} : (tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>)
    %b = "baechi.task"(%a#0, %a#1) ({
    ^bb0(%p: tensor<64x64xf32>, %q: tensor<64x64xf32>):
      %y = "jax.dot_general"(%q, %p) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      "baechi.yield"(%y) : (tensor<64x64xf32>) -> ()
    }) {sym_name = "b", baechi.devices = [1], baechi.cost = #baechi.cost<seconds = [1.0e-03]>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    "func.return"(%b) : (tensor<64x64xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<64x64xf32>) -> tensor<64x64xf32>, arg_attrs = [{baechi.devices = [0]}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>, #baechi.device<>], links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>} : () -> ()
