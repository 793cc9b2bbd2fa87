// RUN: not baechi-opt %s --pass-pipeline='place' 2>&1 | filecheck %s

// Nothing fits: by how much, where, because of what, and what would help.

// CHECK: no placement fits the memory of 2 devices (40 B each)
// CHECK: None can: 'w', which must be on one device, takes at least 64 B (at the start of the step)
// CHECK-SAME: the largest limit is 40 B
// CHECK: device 0 (cpu:0) needs 80 B while 'f0' at train.py:12 runs, 40 B more than its limit of 40 B
// CHECK: 64 B 80.0% argument w
// CHECK-NEXT: 16 B 20.0% f tensor<4xf32>
// CHECK-NEXT: 'w' takes 64 B by itself, too large for any device where it may be.
// CHECK-NEXT: What would help:
// CHECK-NEXT: - a limit of
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w: tensor<16xf32>):
    %0 = "baechi.task"(%w) ({
    ^bb0(%a: tensor<16xf32>):
      %r = "jax.f"(%a) : (tensor<16xf32>) -> tensor<4xf32>
      "baechi.yield"(%r) : (tensor<4xf32>) -> ()
    }) {sym_name = "f0", baechi.cost = #baechi.cost<seconds = [1.0]>}
      : (tensor<16xf32>) -> tensor<4xf32> loc("train.py":12:4)
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<16xf32>) -> tensor<4xf32>,
      arg_attrs = [{baechi.name = "w"}]} : () -> ()
}) {baechi.topology = #baechi.topology<
      devices = [#baechi.device<memory_bytes = 40>, #baechi.device<memory_bytes = 40>],
      links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>}
  : () -> ()
