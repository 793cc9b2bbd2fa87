// RUN: not baechi-opt %s --pass-pipeline=inline-calls --no-verify-each --split-input-file 2>&1 | filecheck %s

// CHECK: error: f.py:1: 'jax.jit' has 1 operands, but its body takes 0
// CHECK: note: in pass 'inline-calls'
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>):
    "jax.jit"(%x) ({
      "baechi.yield"() : () -> ()
    }) : (tensor<f32>) -> () loc("f.py":1:1)
    "func.return"() : () -> ()
  }) {sym_name = "main", function_type = (tensor<f32>) -> ()} : () -> ()
}) : () -> ()

// -----
// CHECK: error: f.py:2: 'jax.jit' has 1 results, but its body yields 0
"builtin.module"() ({
  "func.func"() ({
    %0 = "jax.jit"() ({
      "baechi.yield"() : () -> ()
    }) : () -> tensor<f32> loc("f.py":2:1)
    "func.return"() : () -> ()
  }) {sym_name = "main", function_type = () -> ()} : () -> ()
}) : () -> ()

// -----
// CHECK: error: f.py:3: 'jax.closed_call' must have one region of one block, found 0 regions
"builtin.module"() ({
  "func.func"() ({
    "jax.closed_call"() : () -> () loc("f.py":3:1)
    "func.return"() : () -> ()
  }) {sym_name = "main", function_type = () -> ()} : () -> ()
}) : () -> ()

// -----
// CHECK: error: f.py:4: 'jax.remat' needs 'prevent_cse', a bool or one for each of its 1 operands; found (True, False)
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>):
    "jax.remat"(%x) ({
    ^bb0(%a: tensor<f32>):
      "baechi.yield"() : () -> ()
    }) {differentiated = true, prevent_cse = [true, false]} : (tensor<f32>) -> () loc("f.py":4:1)
    "func.return"() : () -> ()
  }) {sym_name = "main", function_type = (tensor<f32>) -> ()} : () -> ()
}) : () -> ()

// -----
// CHECK: error: f.py:5: the body of 'jax.jit' must end in 'baechi.yield'
"builtin.module"() ({
  "func.func"() ({
    "jax.jit"() ({
      %0 = "jax.rng"() : () -> tensor<f32>
    }) : () -> () loc("f.py":5:1)
    "func.return"() : () -> ()
  }) {sym_name = "main", function_type = () -> ()} : () -> ()
}) : () -> ()
