// RUN: baechi-opt %s --pass-pipeline=annotate-costs --split-input-file | filecheck %s

// 2 * 4 * 8 * 16 flops; operands and result once; 1 flop/s and 1 byte/s, so seconds are the larger.
// CHECK: "jax.dot_general"
// CHECK-SAME: baechi.cost = #baechi.cost<flops = 1024.0, read_bytes = 640.0, written_bytes = 256.0, seconds = [1024.0], output_bytes = 256>
// A transcendental function weighs ten flops; here bytes decide.
// CHECK: "jax.exp"
// CHECK-SAME: flops = 640.0, read_bytes = 256.0, written_bytes = 256.0, seconds = [640.0
// A reshape is nothing.
// CHECK: "jax.reshape"
// CHECK-SAME: baechi.cost = #baechi.cost<seconds = [0.0], output_bytes = 256>
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>):
    %0 = "jax.dot_general"(%x, %w) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %1 = "jax.exp"(%0) : (tensor<4x16xf32>) -> tensor<4x16xf32>
    %2 = "jax.reshape"(%1) {dimensions = #baechi.none, new_sizes = [64]} : (tensor<4x16xf32>) -> tensor<64xf32>
    "func.return"(%2) : (tensor<64xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<64xf32>} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<flops_per_second = 1.0, bytes_per_second = 1.0, launch_seconds = 0.0>]>} : () -> ()

// -----
// A scan is one operation: three times its body, whose two elementwise operations are one kernel.
// One entry of seconds for each kind of device.
// CHECK: "jax.scan"
// CHECK: baechi.cost = #baechi.cost<flops = 24.0, read_bytes = 48.0, written_bytes = 48.0, seconds = [96.0, 9.6
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%c: tensor<4xf32>):
    %0 = "jax.scan"(%c) ({
    ^bb0(%a: tensor<4xf32>):
      %1 = "jax.add"(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %2 = "jax.neg"(%1) : (tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%2) : (tensor<4xf32>) -> ()
    }) {length = 3 : i64, num_carry = 1 : i64, num_consts = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<flops_per_second = 1.0, bytes_per_second = 1.0>, #baechi.device<kind = "fast", flops_per_second = 100.0, bytes_per_second = 10.0>], links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>} : () -> ()
