// RUN: not baechi-opt %s --pass-pipeline='insert-transfers,schedule,plan-memory' 2>&1 | filecheck %s
// RUN: not baechi-opt %s --pass-pipeline='insert-transfers,plan-memory' 2>&1 | filecheck %s --check-prefix=EARLY

// EARLY: error: 'baechi.task' at f.py:3 has no 'baechi.end_seconds'; run schedule first

// CHECK: error: device 0 needs 8.10 KiB while 'a' at f.py:3 runs, 392 B more than its limit of 7.71 KiB.
// CHECK-NEXT: 4.00 KiB 49.4% argument params['w']
// CHECK-NEXT: 4.00 KiB 49.4% tanh tensor<1024xf32> at f.py:2
// CHECK-NEXT: 100 B 1.2% temporaries of 'a' at f.py:3
// CHECK-NEXT: This placement fits when memory_bytes is at least [8392] per device
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<1024xf32>):
    %a = "baechi.task"(%x) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32> loc("f.py":2:0)
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "a", baechi.cost = #baechi.cost<seconds = [1.0e-03], temporary_bytes = 100, output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>) -> tensor<1024xf32> loc("f.py":3:0)
    "func.return"(%a) : (tensor<1024xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<1024xf32>) -> tensor<1024xf32>, arg_attrs = [{baechi.devices = [0], baechi.name = "params['w']"}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<memory_bytes = 8000, reserved_bytes = 100>]>} : () -> ()
