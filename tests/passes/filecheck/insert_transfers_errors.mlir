// RUN: not baechi-opt %s --pass-pipeline=insert-transfers --split-input-file 2>&1 | filecheck %s

// CHECK: error: 'b' at f.py:2 on device 1 reads an effect's token from device 0; ordered effects must share a device: run colocate, or pin them alike
"builtin.module"() ({
  "func.func"() ({
    %a = "baechi.task"() ({
      %t = "baechi.token"() {effect = "Debug"} : () -> !baechi.token
      "baechi.yield"(%t) : (!baechi.token) -> ()
    }) {sym_name = "a", baechi.devices = [0]} : () -> !baechi.token loc("f.py":1:0)
    %b = "baechi.task"(%a) ({
    ^bb0(%t: !baechi.token):
      %u = "jax.debug_callback"(%t) : (!baechi.token) -> !baechi.token
      "baechi.yield"(%u) : (!baechi.token) -> ()
    }) {sym_name = "b", baechi.devices = [1]} : (!baechi.token) -> !baechi.token loc("f.py":2:0)
    "func.return"() : () -> ()
  }) {sym_name = "main", function_type = () -> ()} : () -> ()
}) : () -> ()

// -----
// CHECK: error: argument 0 (state.w) of @main needs one device in 'baechi.devices', found None; run place first
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    "func.return"(%x) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>, arg_attrs = [{baechi.name = "state.w"}]} : () -> ()
}) : () -> ()

// -----
// CHECK: error: task 'a' at f.py:7 needs one device in 'baechi.devices', found None; run place first
"builtin.module"() ({
  "func.func"() ({
    %a = "baechi.task"() ({
      %q = "baechi.literal"() {value = 1.0 : f32} : () -> tensor<f32>
      "baechi.yield"(%q) : (tensor<f32>) -> ()
    }) {sym_name = "a"} : () -> tensor<f32> loc("f.py":7:0)
    "func.return"(%a) : (tensor<f32>) -> ()
  }) {sym_name = "main", function_type = () -> tensor<f32>} : () -> ()
}) : () -> ()
