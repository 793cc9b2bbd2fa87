// RUN: baechi-opt %s --pass-pipeline=insert-transfers --no-locations | filecheck %s

// Two tasks on device 1 read %a's result: it is sent there once. The next state is computed on
// device 1 and goes back to device 0, where its argument lies; the result that is no state stays.

// CHECK: ^bb0(%x: !baechi.on<[0], tensor<4xf32>>):
// CHECK: %[[A:.*]] = "baechi.task"(%x)
// CHECK: (!baechi.on<[0], tensor<4xf32>>) -> !baechi.on<[0], tensor<4xf32>>
// CHECK-NEXT: %[[FLIGHT:.*]] = "baechi.send"(%[[A]]) {channel = 0 : i64, from = 0 : i64, to = 1 : i64} : (!baechi.on<[0], tensor<4xf32>>) -> !baechi.in_flight<tensor<4xf32>>
// CHECK-NEXT: %[[COPY:.*]] = "baechi.recv"(%[[FLIGHT]]) {channel = 0 : i64} : (!baechi.in_flight<tensor<4xf32>>) -> !baechi.on<[1], tensor<4xf32>>
// CHECK-NEXT: %[[B:.*]] = "baechi.task"(%[[COPY]])
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<4xf32>):
// CHECK: %[[FLIGHT:.*]] = "baechi.send"(%[[B]]) {channel = 1 : i64, from = 1 : i64, to = 0 : i64}
// CHECK-NEXT: %[[STATE:.*]] = "baechi.recv"(%[[FLIGHT]])
// CHECK-NEXT: %[[C:.*]] = "baechi.task"(%[[COPY]], %[[B]])
// CHECK: "func.return"(%[[STATE]], %[[C]]) : (!baechi.on<[0], tensor<4xf32>>, !baechi.on<[1], tensor<4xf32>>) -> ()
// CHECK-NEXT: function_type = (!baechi.on<[0], tensor<4xf32>>) -> (!baechi.on<[0], tensor<4xf32>>, !baechi.on<[1], tensor<4xf32>>)
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %a = "baechi.task"(%x) ({
    ^bb0(%p: tensor<4xf32>):
      %q = "jax.neg"(%p) : (tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%q) : (tensor<4xf32>) -> ()
    }) {sym_name = "a", baechi.devices = [0]} : (tensor<4xf32>) -> tensor<4xf32>
    %b = "baechi.task"(%a) ({
    ^bb0(%p: tensor<4xf32>):
      %q = "jax.neg"(%p) : (tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%q) : (tensor<4xf32>) -> ()
    }) {sym_name = "b", baechi.devices = [1]} : (tensor<4xf32>) -> tensor<4xf32>
    %c = "baechi.task"(%a, %b) ({
    ^bb0(%p: tensor<4xf32>, %r: tensor<4xf32>):
      %q = "jax.add"(%p, %r) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%q) : (tensor<4xf32>) -> ()
    }) {sym_name = "c", baechi.devices = [1]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%b, %c) : (tensor<4xf32>, tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>), arg_attrs = [{baechi.devices = [0], baechi.state = 0 : i64}]} : () -> ()
}) : () -> ()
