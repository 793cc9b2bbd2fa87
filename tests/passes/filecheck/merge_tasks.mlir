// RUN: baechi-opt %s --pass-pipeline=merge-tasks --no-locations --split-input-file | filecheck %s

// On one device the step is one task, whose cost is that of all its operations compiled as one:
// what one tanh hands to the next is no longer written out.

// CHECK-LABEL: "builtin.module"
// CHECK: %[[ALL:.*]] = "baechi.task"(%x)
// CHECK: "jax.tanh"
// CHECK-NEXT: "jax.tanh"
// CHECK-NEXT: "baechi.yield"
// CHECK-NEXT: }) {sym_name = "t0", baechi.devices = [0], baechi.cost = #baechi.cost<{{.*}}written_bytes = 4096.0
// CHECK-NEXT: "func.return"(%[[ALL]])
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<1024xf32>):
    %a = "baechi.task"(%x) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "a", baechi.devices = [0], baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>} : (tensor<1024xf32>) -> tensor<1024xf32>
    %b = "baechi.task"(%a) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "b", baechi.devices = [0], baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>} : (tensor<1024xf32>) -> tensor<1024xf32>
    "func.return"(%b) : (tensor<1024xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<1024xf32>) -> tensor<1024xf32>, arg_attrs = [{baechi.devices = [0]}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>]>} : () -> ()

// -----
// Task b and its update u are on one device, but what b gives is sent on to c, which would have to
// wait for u: they stay apart. On device 1, c and d become one.

// CHECK-LABEL: "builtin.module"
// CHECK: %[[B:.*]] = "baechi.task"(%x)
// CHECK: sym_name = "t0", baechi.cost
// CHECK: "baechi.task"(%[[B]])
// CHECK: baechi.devices = [{{[01]}}]
// CHECK: "baechi.task"(%[[B]])
// CHECK: baechi.devices = [{{[01]}}]
// CHECK-NEXT: "func.return"
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<1024xf32>):
    %b = "baechi.task"(%x) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "b", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>) -> tensor<1024xf32>
    %u = "baechi.task"(%b) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.neg"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "u", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>) -> tensor<1024xf32>
    %c = "baechi.task"(%b) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "c", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [1]} : (tensor<1024xf32>) -> tensor<1024xf32>
    %d = "baechi.task"(%c) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "d", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [1]} : (tensor<1024xf32>) -> tensor<1024xf32>
    "func.return"(%u, %d) : (tensor<1024xf32>, tensor<1024xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<1024xf32>) -> (tensor<1024xf32>, tensor<1024xf32>), arg_attrs = [{baechi.devices = [0]}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>, #baechi.device<>], links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>} : () -> ()

// -----
// A path leaves device 0 after a and comes back before c: a and c cannot be one task.

// CHECK-LABEL: "builtin.module"
// CHECK-COUNT-3: "baechi.task"
// CHECK-NOT: "baechi.task"
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<1024xf32>):
    %a = "baechi.task"(%x) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "a", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>) -> tensor<1024xf32>
    %b = "baechi.task"(%a) ({
    ^bb0(%p: tensor<1024xf32>):
      %q = "jax.tanh"(%p) : (tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "b", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [1]} : (tensor<1024xf32>) -> tensor<1024xf32>
    %c = "baechi.task"(%a, %b) ({
    ^bb0(%p: tensor<1024xf32>, %r: tensor<1024xf32>):
      %q = "jax.add"(%p, %r) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
      "baechi.yield"(%q) : (tensor<1024xf32>) -> ()
    }) {sym_name = "c", baechi.cost = #baechi.cost<seconds = [1.0e-03], output_bytes = 4096>, baechi.devices = [0]} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    "func.return"(%c) : (tensor<1024xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<1024xf32>) -> tensor<1024xf32>, arg_attrs = [{baechi.devices = [0]}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>, #baechi.device<>], links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>} : () -> ()
