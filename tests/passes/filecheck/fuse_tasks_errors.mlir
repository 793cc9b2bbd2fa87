// RUN: not baechi-opt %s --pass-pipeline=fuse-tasks --split-input-file 2>&1 | filecheck %s
// RUN: not baechi-opt %s --pass-pipeline='fuse-tasks{max-tasks=0}' 2>&1 | filecheck %s --check-prefix=NONE

// NONE: max-tasks must be at least 1, found 0

// CHECK: error: 'jax.neg' at f.py:2 is pinned to devices [1], but it must share a device with 'jax.tanh' at f.py:1, which is pinned to [0]
// CHECK-SAME: pin both to one device, or neither
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %y = "jax.tanh"(%x) {baechi.group = "a", baechi.pin = [0]} : (tensor<4xf32>) -> tensor<4xf32> loc("f.py":1:0)
    %z = "jax.neg"(%y) {baechi.group = "a", baechi.pin = [1]} : (tensor<4xf32>) -> tensor<4xf32> loc("f.py":2:0)
    "func.return"(%z) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>, #baechi.device<>], links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>} : () -> ()

// -----
// CHECK: error: the module has no 'baechi.topology'; run annotate-costs
"builtin.module"() ({
  "func.func"() ({
    "func.return"() : () -> ()
  }) {sym_name = "main", function_type = () -> ()} : () -> ()
}) : () -> ()
