// RUN: baechi-opt %s --pass-pipeline='insert-transfers,schedule,plan-memory' --no-locations | filecheck %s

// A chain a, b, c of values of 4096 bytes. One by one, two live at once beside %x: 12288 bytes. The
// host may issue all three before the first has ended, so with that limit it must wait, before c,
// until b has read a's result. The value of b is alive, and proves it.

// CHECK: %[[A:.*]] = "baechi.task"(%x)
// CHECK: %[[B:.*]]:2 = "baechi.task"(%[[A]])
// CHECK: baechi.frees = [0]
// CHECK-NEXT: "baechi.wait"(%[[B]]#{{[01]}})
// CHECK-NEXT: "baechi.task"(%[[B]]#0)
// CHECK: baechi.frees = [0]
// CHECK: baechi.memory = [#baechi.memory<peak_bytes = 12292, run_ahead_bytes = 12292, resident_bytes = 4096, limit_bytes = 12292>]
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<1024xf32>):
    %a = "baechi.task"(%x) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "a", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>) -> tensor<1024xf32>
    %b:2 = "baechi.task"(%a) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.reshape"(%p) {new_sizes = [32, 32], dimensions = []} : (tensor<1024xf32>) -> tensor<32x32xf32>
      %s = "jax.reduce_sum"(%p) {axes = [0]} : (tensor<1024xf32>) -> tensor<f32>
      "baechi.yield"(%q, %s) : (tensor<32x32xf32>, tensor<f32>) -> ()
    }) {sym_name = "b", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4100>, baechi.devices = [0]} : (tensor<1024xf32>) -> (tensor<32x32xf32>, tensor<f32>)
    %c = "baechi.task"(%b#0) ({
    ^bb0(%p: tensor<32x32xf32>):
      %q = "jax.reshape"(%p) {new_sizes = [1024], dimensions = []} : (tensor<32x32xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "c", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [0]} : (tensor<32x32xf32>) -> tensor<1024xf32>
    "func.return"(%c, %b#1) : (tensor<1024xf32>, tensor<f32>) -> ()
  }) {sym_name = "main", function_type = (tensor<1024xf32>) -> (tensor<1024xf32>, tensor<f32>), arg_attrs = [{baechi.devices = [0]}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<memory_bytes = 12292>]>} : () -> ()
