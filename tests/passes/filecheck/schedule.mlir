// RUN: baechi-opt %s --pass-pipeline='insert-transfers,schedule' --no-locations | filecheck %s

// a's result goes to device 1, where the long task d waits for it, so a comes before b although b
// stands first. The send comes right after a; the receive right before d. The step takes a, the
// transfer (1 ms and 4096 bytes at 4.096 MB/s: 2 ms in all), then d: 1 + 2 + 4 ms. No placement
// can be faster than the longest way without transfers: a, d.

// CHECK: %[[A:.*]] = "baechi.task"(%x)
// CHECK: sym_name = "a", {{.*}}baechi.start_seconds = 0.0 : f64, baechi.end_seconds = 0.001 : f64
// CHECK-NEXT: %[[B:.*]] = "baechi.task"(%x)
// CHECK: sym_name = "b", {{.*}}baechi.start_seconds = 0.001 : f64, baechi.end_seconds = 0.002 : f64
// CHECK-NEXT: %[[FLIGHT:.*]] = "baechi.send"(%[[A]]) {{.*}}baechi.start_seconds = 0.001 : f64, baechi.end_seconds = 0.003 : f64
// CHECK-NEXT: %[[COPY:.*]] = "baechi.recv"(%[[FLIGHT]]) {channel = 0 : i64, baechi.start_seconds = 0.001 : f64, baechi.end_seconds = 0.003 : f64}
// CHECK-NEXT: %[[D:.*]] = "baechi.task"(%[[COPY]])
// CHECK: sym_name = "d", {{.*}}baechi.start_seconds = 0.003 : f64, baechi.end_seconds = 0.007 : f64
// CHECK: "func.return"(%[[B]], %[[D]])
// CHECK: baechi.step_seconds = 0.007 : f64, baechi.lower_bound_seconds = 0.005 : f64
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<1024xf32>):
    %b = "baechi.task"(%x) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "b", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>) -> tensor<1024xf32>
    %a = "baechi.task"(%x) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.neg"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "a", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>) -> tensor<1024xf32>
    %d = "baechi.task"(%a) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "d", baechi.cost = #baechi.cost<seconds = [4.0e-03], output_bytes = 4096>, baechi.devices = [1]} : (tensor<1024xf32>) -> tensor<1024xf32>
    "func.return"(%b, %d) : (tensor<1024xf32>, tensor<1024xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<1024xf32>) -> (tensor<1024xf32>, tensor<1024xf32>), arg_attrs = [{baechi.devices = [0]}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>, #baechi.device<>], links = [#baechi.link<source = 0, target = 1, latency_seconds = 1.0e-03, bytes_per_second = 4.096e+06>, #baechi.link<source = 1, target = 0>]>} : () -> ()
