// RUN: baechi-opt %s --pass-pipeline='insert-transfers,schedule,plan-memory,partition,verify-plan' --no-locations | filecheck %s

// CHECK: sym_name = "main"
// CHECK: ^bb0(%x: !baechi.on<[0], tensor<4xf32>>):
// CHECK-NEXT: %[[A:.*]] = "baechi.run"(%x) {task = @main::@a}
// CHECK-NEXT: "baechi.send"(%[[A]]) {channel = 0 : i64, to = 1 : i64, baechi.frees = [0]} : (!baechi.on<[0], tensor<4xf32>>) -> ()
// CHECK-NEXT: "func.return"()
// CHECK-NEXT: sym_name = "main_d0", arg_attrs = [{baechi.name = "x", baechi.argument = 1 : i64}]
// CHECK: ^bb0(%w: !baechi.on<[1], tensor<4xf32>>):
// CHECK-NEXT: %[[COPY:.*]] = "baechi.recv"() {channel = 0 : i64, from = 0 : i64} : () -> !baechi.on<[1], tensor<4xf32>>
// CHECK-NEXT: %[[B:.*]] = "baechi.run"(%w, %[[COPY]]) {task = @main::@b, baechi.frees = [0, 1], baechi.donates = [0]}
// CHECK-NEXT: "func.return"(%[[B]])
// CHECK-NEXT: sym_name = "main_d1", arg_attrs = [{baechi.name = "w", baechi.donated, baechi.argument = 0 : i64}], res_attrs = [{baechi.name = "result", baechi.result = 0 : i64}]
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w: tensor<4xf32>, %x: tensor<4xf32>):
    %a = "baechi.task"(%x) ({
    ^bb0(%p: tensor<4xf32>):
      %q = "jax.neg"(%p) : (tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%q) : (tensor<4xf32>) -> ()
    }) {sym_name = "a", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 16>, baechi.devices = [0]} : (tensor<4xf32>) -> tensor<4xf32>
    %b = "baechi.task"(%w, %a) ({
    ^bb0(%p: tensor<4xf32>, %r: tensor<4xf32>):
      %q = "jax.add"(%p, %r) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%q) : (tensor<4xf32>) -> ()
    }) {sym_name = "b", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 16>, baechi.devices = [1]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%b) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>, arg_attrs = [{baechi.name = "w", baechi.devices = [1], baechi.donated, baechi.state = 0 : i64}, {baechi.name = "x", baechi.devices = [0]}], res_attrs = [{baechi.name = "result"}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>, #baechi.device<>], links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>} : () -> ()
