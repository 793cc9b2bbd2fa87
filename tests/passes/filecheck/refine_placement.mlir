// RUN: baechi-opt %s --pass-pipeline='place{placer=expert},refine-placement' --no-locations | filecheck %s

// Four equal tasks that read nothing from one another. Only the first is pinned, so the others are
// all left on device 0; one more goes to device 1, and then the step is half as long.

// CHECK: sym_name = "a", {{.*}}baechi.devices = [1]
// CHECK: sym_name = "b", {{.*}}baechi.devices = [0]
// CHECK: sym_name = "c", {{.*}}baechi.devices = [1]
// CHECK: sym_name = "d", {{.*}}baechi.devices = [0]
// CHECK: baechi.placement = {placer = "expert", status = "refined", makespan_seconds = 2.0
// CHECK-SAME: gap = 0.0
// CHECK-SAME: refinement = {evaluations = {{[0-9]+}} : i64, improvements = 1 : i64}
"builtin.module"() ({
  "func.func"() ({
  ^bb0:
    %0 = "baechi.task"() ({
      %r = "jax.f"() : () -> tensor<4xf32>
      "baechi.yield"(%r) : (tensor<4xf32>) -> ()
    }) {sym_name = "a", baechi.cost = #baechi.cost<seconds = [1.0]>, baechi.pin = [1]}
      : () -> tensor<4xf32>
    %1 = "baechi.task"() ({
      %r = "jax.f"() : () -> tensor<4xf32>
      "baechi.yield"(%r) : (tensor<4xf32>) -> ()
    }) {sym_name = "b", baechi.cost = #baechi.cost<seconds = [1.0]>} : () -> tensor<4xf32>
    %2 = "baechi.task"() ({
      %r = "jax.f"() : () -> tensor<4xf32>
      "baechi.yield"(%r) : (tensor<4xf32>) -> ()
    }) {sym_name = "c", baechi.cost = #baechi.cost<seconds = [1.0]>} : () -> tensor<4xf32>
    %3 = "baechi.task"() ({
      %r = "jax.f"() : () -> tensor<4xf32>
      "baechi.yield"(%r) : (tensor<4xf32>) -> ()
    }) {sym_name = "d", baechi.cost = #baechi.cost<seconds = [1.0]>} : () -> tensor<4xf32>
    "func.return"(%0, %1, %2, %3)
      : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> ()
  }) {sym_name = "main",
      function_type = () -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)}
    : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device, #baechi.device],
      links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>}
  : () -> ()
