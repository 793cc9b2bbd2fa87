// RUN: baechi-opt %s --pass-pipeline='annotate-costs,fuse-tasks{max-tasks=8}' --no-locations | filecheck %s

// Two layers, each in its group, forward and backward, and the first one's update. The forward and
// the backward part of a group are tasks of their own, and so is the update, which would otherwise
// delay what the backward part sends on. The literal is in every task that reads it, and the scaled
// momentum waits for the gradient although it could be computed at once.

// CHECK-LABEL: "func.func"
// CHECK: %[[F0:.*]] = "baechi.task"(%x, %w0)
// CHECK: "jax.dot_general"
// CHECK-NEXT: "jax.tanh"
// CHECK: }) {sym_name = "t0", baechi.group = "layer0", baechi.cost = #baechi.cost<flops = {{.*}}>}
// CHECK-NEXT: %[[F1:.*]]:2 = "baechi.task"(%[[F0]], %w1)
// CHECK: sym_name = "t1", baechi.group = "layer1"
// CHECK-NEXT: %[[B1:.*]] = "baechi.task"(%[[F1]]#0, %w1)
// CHECK: "baechi.literal"() {value = 2.0 : f32
// CHECK: sym_name = "t2", baechi.group = "layer1"
// CHECK-NEXT: %[[B0:.*]] = "baechi.task"(%x, %[[B1]])
// CHECK: sym_name = "t3", baechi.group = "layer0"
// CHECK-NEXT: %[[U0:.*]] = "baechi.task"(%m0, %[[B0]])
// CHECK: %[[LITERAL:.*]] = "baechi.literal"() {value = 2.0 : f32
// CHECK-NEXT: %[[SCALED:.*]] = "jax.mul"(%[[LITERAL]], %{{.*}})
// CHECK-NEXT: "jax.add"(%[[SCALED]], %{{.*}})
// CHECK: sym_name = "t4", baechi.group = "layer0"
// CHECK-NEXT: "func.return"(%[[F1]]#1, %[[U0]])
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w0: tensor<64x64xf32>, %w1: tensor<64x64xf32>, %m0: tensor<64x64xf32>, %x: tensor<64x64xf32>):
    %two = "baechi.literal"() {value = 2.0 : f32} : () -> tensor<f32>
    %a = "jax.dot_general"(%x, %w0) {dimension_numbers = [[[1], [0]], [[], []]], baechi.group = "layer0"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("jvp()"("f.py":1:0))
    %b = "jax.tanh"(%a) {baechi.group = "layer0"} : (tensor<64x64xf32>) -> tensor<64x64xf32> loc("jvp()"("f.py":2:0))
    %scaled = "jax.mul"(%two, %m0) {baechi.group = "layer0"} : (tensor<f32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("f.py":3:0)
    %c = "jax.dot_general"(%b, %w1) {dimension_numbers = [[[1], [0]], [[], []]], baechi.group = "layer1"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("jvp()"("f.py":4:0))
    %loss = "jax.reduce_sum"(%c) {axes = [0, 1], baechi.group = "layer1"} : (tensor<64x64xf32>) -> tensor<f32> loc("jvp()"("f.py":5:0))
    %d = "jax.mul"(%two, %c) {baechi.group = "layer1"} : (tensor<f32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("transpose(jvp())"("f.py":6:0))
    %e = "jax.dot_general"(%d, %w1) {dimension_numbers = [[[1], [1]], [[], []]], baechi.group = "layer1"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("transpose(jvp())"("f.py":7:0))
    %g0 = "jax.dot_general"(%x, %e) {dimension_numbers = [[[0], [0]], [[], []]], baechi.group = "layer0"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("transpose(jvp())"("f.py":8:0))
    %m1 = "jax.add"(%scaled, %g0) {baechi.group = "layer0"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("f.py":9:0)
    "func.return"(%loss, %m1) : (tensor<f32>, tensor<64x64xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) -> (tensor<f32>, tensor<64x64xf32>)} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>]>} : () -> ()
