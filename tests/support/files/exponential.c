/* What BridgeStan makes of exponential.stan, without Stan: the same functions in C. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const int bs_major_version = MAJOR, bs_minor_version = MINOR, bs_patch_version = PATCH;

void *bs_model_construct(const char *data, unsigned seed, char **error) { return malloc(1); }
void bs_model_destruct(void *model) { free(model); }
void bs_free_error_msg(char *error) { free(error); }
int bs_set_print_callback(void *callback, char **error) { return 0; }
const char *bs_name(const void *model) { return "exponential"; }
const char *bs_model_info(const void *model) { return "STAN_THREADS=false"; }
int bs_param_unc_num(const void *model) { return 3; }
int bs_param_num(const void *model, bool has_transformed, bool has_generated) {
  return has_transformed ? 7 : 3;
}
const char *bs_param_names(const void *model, bool has_transformed, bool has_generated) {
  return has_transformed ? "scale,units.1,units.2,products.1.1,products.2.1,"
                           "products.1.2,products.2.2"
                         : "scale,units.1,units.2";
}
const char *bs_param_unc_names(const void *model) { return "scale,units.1,units.2"; }

int bs_param_constrain(const void *model, bool has_transformed, bool has_generated,
                       const double *theta, double *out, void *rng, char **error) {
  out[0] = exp(theta[0]);
  for (int i = 0; i < 2; i++) {
    out[1 + i] = theta[1 + i];
    if (has_transformed)
      for (int j = 0; j < 2; j++) out[3 + i + 2 * j] = theta[1 + i] * theta[1 + j];
  }
  return 0;
}

int bs_log_density_gradient(const void *model, bool drops_constants, bool has_jacobian,
                            const double *theta, double *value, double *gradient,
                            char **error) {
  if (theta[1] > 50.0) {
    if (error) *error = strdup("units are too large");
    return -1;
  }
  double scale = exp(theta[0]);
  *value = -scale - 0.5 * (theta[1] * theta[1] + theta[2] * theta[2]);
  if (!drops_constants) *value -= log(2.0 * acos(-1.0));
  if (has_jacobian) *value += theta[0];
  if (gradient) {
    gradient[0] = (has_jacobian ? 1.0 : 0.0) - scale;
    gradient[1] = -theta[1];
    gradient[2] = -theta[2];
  }
  return 0;
}
int bs_log_density(const void *model, bool drops_constants, bool has_jacobian,
                   const double *theta, double *value, char **error) {
  return bs_log_density_gradient(model, drops_constants, has_jacobian, theta, value, 0,
                                 error);
}

/* The package of Python looks for these, too. Nothing calls them. */
void bs_param_unconstrain(void) {}
void bs_param_unconstrain_json(void) {}
void bs_param_initialize(void) {}
void bs_log_density_hessian(void) {}
void bs_log_density_hessian_vector_product(void) {}
void bs_rng_construct(void) {}
void bs_rng_destruct(void) {}
