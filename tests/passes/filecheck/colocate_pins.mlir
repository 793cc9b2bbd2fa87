// RUN: baechi-opt %s --pass-pipeline=colocate --split-input-file | filecheck %s

// A scope pins what is in it, in the backward pass too, and with it the whole group: the argument
// and its update. Of nested scopes the inner one counts. An input that both read binds neither.
// CHECK: "jax.dot_general"{{.*}}baechi.group = "w", baechi.pin = [1]
// CHECK: "jax.sin"{{.*}}baechi.pin = [0]
// CHECK: "jax.sub"{{.*}}baechi.group = "w", baechi.pin = [1]
// CHECK: arg_attrs = [{baechi.name = "w", baechi.state = 0 : i64, baechi.group = "w", baechi.pin = [1]}
// CHECK-SAME: {baechi.name = "x"}]
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w: tensor<8x8xf32>, %x: tensor<8x8xf32>):
    %0 = "jax.dot_general"(%x, %w) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("transpose(jvp(baechi.device:1))/dot"("f.py":1:1))
    %1 = "jax.sin"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32> loc("baechi.device:1/inner/baechi.device:0"("f.py":2:1))
    %2 = "jax.sub"(%w, %0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("f.py":3:1)
    "func.return"(%2, %1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>), arg_attrs = [{baechi.name = "w", baechi.state = 0 : i64}, {baechi.name = "x"}]} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>, #baechi.device<>], links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>} : () -> ()
