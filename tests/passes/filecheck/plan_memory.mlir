// RUN: baechi-opt %s --pass-pipeline='insert-transfers,schedule,plan-memory' --no-locations | filecheck %s

// %w is donated: its last reader frees it, and its buffer becomes the next %w. %x is the caller's: it
// is never freed. a's result dies with c. Peak: %w, %x and a's result, b's result and b's temporaries
// (4 x 4096 + 100), and the same without %x and temporaries while c runs in the buffer of %w.
// Running ahead, b's temporaries may still be there while c's scalar is allocated too.

// CHECK: %[[A:.*]] = "baechi.task"(%w, %x)
// CHECK-NOT: baechi.frees
// CHECK: %[[B:.*]] = "baechi.task"(%[[A]], %x)
// CHECK-NOT: baechi.frees
// CHECK: %[[C:.*]]:2 = "baechi.task"(%w, %[[A]])
// CHECK: baechi.frees = [0, 1], baechi.donates = [0]
// CHECK: "func.return"(%[[C]]#0, %[[B]], %[[C]]#1)
// CHECK: baechi.memory = [#baechi.memory<peak_bytes = 16484, run_ahead_bytes = 16488, resident_bytes = 8192, limit_bytes = 1073741824>]
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w: tensor<1024xf32>, %x: tensor<1024xf32>):
    %a = "baechi.task"(%w, %x) ({
    ^bb0(%p: tensor<1024xf32>, %r: tensor<1024xf32>):
      %q = "jax.add"(%p, %r) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "a", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %b = "baechi.task"(%a, %x) ({
    ^bb0(%p: tensor<1024xf32>, %r: tensor<1024xf32>):
      %q = "jax.mul"(%p, %r) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "b", baechi.cost = #baechi.cost<seconds = [1.0e-02], temporary_bytes = 100, output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %c:2 = "baechi.task"(%w, %a) ({
    ^bb0(%p: tensor<1024xf32>, %r: tensor<1024xf32>):
      %q = "jax.add"(%p, %r) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
      %s = "jax.reduce_sum"(%q) {axes = [0]} : (tensor<1024xf32>) -> tensor<f32>
      "baechi.yield"(%q, %s) : (tensor<1024xf32>, tensor<f32>) -> ()
    }) {sym_name = "c", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4100>, baechi.devices = [0]} : (tensor<1024xf32>, tensor<1024xf32>) -> (tensor<1024xf32>, tensor<f32>)
    "func.return"(%c#0, %b, %c#1) : (tensor<1024xf32>, tensor<1024xf32>, tensor<f32>) -> ()
  }) {sym_name = "main", function_type = (tensor<1024xf32>, tensor<1024xf32>) -> (tensor<1024xf32>, tensor<1024xf32>, tensor<f32>), arg_attrs = [{baechi.devices = [0], baechi.donated, baechi.state = 0 : i64}, {baechi.devices = [0]}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>]>} : () -> ()
