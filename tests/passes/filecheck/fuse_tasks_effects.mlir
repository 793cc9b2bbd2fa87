// RUN: baechi-opt %s --pass-pipeline=fuse-tasks --no-locations | filecheck %s

// Operations joined by an effect's token share a device wherever they are, so they share a group.
// A task that has an effect and no values yields a constant, which shows when it has run.

// CHECK: %[[TOKEN:.*]]:2 = "baechi.task"(%x)
// CHECK: "baechi.token"
// CHECK: "jax.debug_callback"
// CHECK: "baechi.yield"(%{{.*}}, %{{.*}}) : (!baechi.token, tensor<i1>) -> ()
// CHECK-NEXT: }) {sym_name = "t0", baechi.group = "effects.{{[0-9]+}}"
// CHECK: %{{.*}} = "baechi.task"(%{{.*}}, %[[TOKEN]]#0)
// CHECK: "jax.debug_callback"
// CHECK-NEXT: %[[DONE:.*]] = "baechi.literal"() {value = true}
// CHECK-NEXT: "baechi.yield"(%[[DONE]]) : (tensor<i1>) -> ()
// CHECK-NEXT: }) {sym_name = "t2", baechi.group = "effects.{{[0-9]+}}"
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %t0 = "baechi.token"() {effect = "Debug"} : () -> !baechi.token
    %t1 = "jax.debug_callback"(%x, %t0) : (tensor<4xf32>, !baechi.token) -> !baechi.token loc("jvp()"("f.py":1:0))
    %y = "jax.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("jvp()"("f.py":2:0))
    %t2 = "jax.debug_callback"(%y, %t1) : (tensor<4xf32>, !baechi.token) -> !baechi.token loc("transpose(jvp())"("f.py":3:0))
    "func.return"(%y) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>]>} : () -> ()
