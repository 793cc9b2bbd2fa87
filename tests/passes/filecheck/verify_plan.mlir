// RUN: not baechi-opt %s --pass-pipeline=verify-plan --split-input-file 2>&1 | filecheck %s

// Every rule has a test in test_verify_plan.py; here is what a user sees of two.

// CHECK: error: task 'b' (f.py:2) on device 0 uses result 0 of task 'a' (f.py:1) on device 0, which wait (f.py:2) freed
// CHECK: note: in pass 'verify-plan'
"builtin.module"() ({
  "func.func"() ({
    %a = "baechi.task"() ({
      %q = "baechi.literal"() {value = 1.0 : f32} : () -> tensor<f32>
      "baechi.yield"(%q) : (tensor<f32>) -> ()
    }) {sym_name = "a", baechi.cost = #baechi.cost<>, baechi.devices = [0]} : () -> !baechi.on<[0], tensor<f32>> loc("f.py":1:0)
    "baechi.wait"(%a) {baechi.frees = [0]} : (!baechi.on<[0], tensor<f32>>) -> () loc("f.py":2:0)
    %b = "baechi.task"(%a) ({
    ^bb0(%p: tensor<f32>):
      %q = "jax.neg"(%p) : (tensor<f32>) -> tensor<f32>
      "baechi.yield"(%q) : (tensor<f32>) -> ()
    }) {sym_name = "b", baechi.cost = #baechi.cost<>, baechi.devices = [0]} : (!baechi.on<[0], tensor<f32>>) -> !baechi.on<[0], tensor<f32>> loc("f.py":2:0)
    "func.return"(%b) : (!baechi.on<[0], tensor<f32>>) -> ()
  }) {sym_name = "main", function_type = () -> !baechi.on<[0], tensor<f32>>, baechi.memory = [#baechi.memory<>]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>]>} : () -> ()

// -----
// CHECK: error: @main needs 'baechi.memory' with one entry for each of 1 devices
"builtin.module"() ({
  "func.func"() ({
    "func.return"() : () -> ()
  }) {sym_name = "main", function_type = () -> ()} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>]>} : () -> ()
