// RUN: baechi-opt %s --pass-pipeline='place{placer=m-topo}' --no-locations --split-input-file | filecheck %s

// Four tasks in two groups; memory for one group on each device. The weights go with their group,
// the batch with its first reader, and the module says what was decided.

// CHECK-LABEL: "func.func"
// CHECK: "baechi.task"
// CHECK: sym_name = "f0", {{.*}}baechi.devices = [0]
// CHECK: sym_name = "f1", {{.*}}baechi.devices = [1]
// CHECK: sym_name = "b1", {{.*}}baechi.devices = [1]
// CHECK: sym_name = "b0", {{.*}}baechi.devices = [0]
// CHECK: baechi.name = "w0", baechi.group = "layer0", baechi.devices = [0]
// CHECK-SAME: baechi.name = "w1", baechi.group = "layer1", baechi.devices = [1]
// CHECK-SAME: baechi.name = "x", baechi.devices = [0]
// CHECK: baechi.placement = {placer = "m-topo", status = "heuristic", makespan_seconds =
// CHECK-SAME: bound_seconds =
// CHECK-SAME: candidates = [{placer = "m-topo"
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w0: tensor<16xf32>, %w1: tensor<16xf32>, %x: tensor<4xf32>):
    %0 = "baechi.task"(%x, %w0) ({
    ^bb0(%a: tensor<4xf32>, %b: tensor<16xf32>):
      %r = "jax.f"(%a, %b) : (tensor<4xf32>, tensor<16xf32>) -> tensor<4xf32>
      "baechi.yield"(%r) : (tensor<4xf32>) -> ()
    }) {sym_name = "f0", baechi.cost = #baechi.cost<seconds = [1.0]>, baechi.group = "layer0"}
      : (tensor<4xf32>, tensor<16xf32>) -> tensor<4xf32>
    %1 = "baechi.task"(%0, %w1) ({
    ^bb0(%a: tensor<4xf32>, %b: tensor<16xf32>):
      %r = "jax.f"(%a, %b) : (tensor<4xf32>, tensor<16xf32>) -> tensor<4xf32>
      "baechi.yield"(%r) : (tensor<4xf32>) -> ()
    }) {sym_name = "f1", baechi.cost = #baechi.cost<seconds = [1.0]>, baechi.group = "layer1"}
      : (tensor<4xf32>, tensor<16xf32>) -> tensor<4xf32>
    %2 = "baechi.task"(%1, %w1) ({
    ^bb0(%a: tensor<4xf32>, %b: tensor<16xf32>):
      %r = "jax.g"(%a, %b) : (tensor<4xf32>, tensor<16xf32>) -> tensor<4xf32>
      "baechi.yield"(%r) : (tensor<4xf32>) -> ()
    }) {sym_name = "b1", baechi.cost = #baechi.cost<seconds = [1.0]>, baechi.group = "layer1"}
      : (tensor<4xf32>, tensor<16xf32>) -> tensor<4xf32>
    %3 = "baechi.task"(%2, %w0) ({
    ^bb0(%a: tensor<4xf32>, %b: tensor<16xf32>):
      %r = "jax.g"(%a, %b) : (tensor<4xf32>, tensor<16xf32>) -> tensor<4xf32>
      "baechi.yield"(%r) : (tensor<4xf32>) -> ()
    }) {sym_name = "b0", baechi.cost = #baechi.cost<seconds = [1.0]>, baechi.group = "layer0"}
      : (tensor<4xf32>, tensor<16xf32>) -> tensor<4xf32>
    "func.return"(%3) : (tensor<4xf32>) -> ()
  }) {sym_name = "main",
      function_type = (tensor<16xf32>, tensor<16xf32>, tensor<4xf32>) -> tensor<4xf32>,
      arg_attrs = [{baechi.name = "w0", baechi.group = "layer0"},
                   {baechi.name = "w1", baechi.group = "layer1"}, {baechi.name = "x"}]} : () -> ()
}) {baechi.topology = #baechi.topology<
      devices = [#baechi.device<memory_bytes = 140>, #baechi.device<memory_bytes = 140>],
      links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>}
  : () -> ()
