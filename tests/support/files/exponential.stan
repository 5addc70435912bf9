parameters {
  real<lower=0> scale;
  vector[2] units;
}
transformed parameters {
  matrix[2, 2] products = units * units';
}
model {
  if (units[1] > 50) reject("units are too large");
  scale ~ exponential(1);
  units ~ std_normal();
}
