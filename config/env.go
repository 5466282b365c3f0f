package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/oncebox/oncebox/outbox"
)

// prefix stands before every variable.
const prefix = "ONCEBOX_"

// retention is the variable of outbox.Config.Retention.
const retention = prefix + "OUTBOX_RETENTION"

// unprefixed are the variables that are also understood under the names that other tools give them.
var unprefixed = []string{"DATABASE_URL", "PULSAR_URL", "PULSAR_ADMIN_URL"} //nolint:gochecknoglobals // a constant list

// FromEnv returns the configuration that the environment describes, validated. Variables that are not set, or set to nothing, leave
// the defaults. The error names every variable that cannot be used, with its value and what is expected, and every variable that
// begins with ONCEBOX_ and does not exist, see [Env].
func FromEnv() (Config, error) {
	var c Config
	if err := Env(prefix, &c); err != nil {
		return c, err
	}
	if err := c.Validate(); err != nil {
		return c, lines(inVariables(err))
	}
	return c, nil
}

// Env fills a struct with `env` tags from the variables that begin with prefix. A program uses it for settings of its own, and for parts that it chooses
// itself, such as a broker adapter. The tags are those of github.com/caarlos0/env: with `env:"URL,notEmpty"` a variable is required, and envDefault has a
// default. A map[string]string takes key:value, separated by commas. A [time.Duration] may be a plain -1. A type with UnmarshalText reads its value itself.
// Env calls no method of the struct, so check further rules afterwards. The error has a line for each variable that cannot be used.
//
// With a prefix that does not begin with ONCEBOX_, variables without a field are ignored, because the prefix may have other variables too.
// Where prefix begins with ONCEBOX_, a variable that begins with prefix and has no field is an error with the nearest name: a
// setting with a misspelt name would do nothing. [FromEnv] leaves ONCEBOX_PULSAR_, ONCEBOX_NATS_, ONCEBOX_KAFKA_, ONCEBOX_RABBITMQ_ and
// ONCEBOX_MEMORY_ to the programs that use these brokers, and ONCEBOX_SERVE_ to programs that use package serve, which reads all of them.
// ONCEBOX_IGNORE lists names to leave alone, separated by commas; a name that ends with * stands for all that begin so.
// Variables that Kubernetes makes of a service's name are left alone.
func Env(prefix string, cfg any) error {
	fields, err := env.GetFieldParamsWithOptions(cfg, env.Options{Prefix: prefix})
	if err != nil {
		return fmt.Errorf("config: read the environment: %w", err)
	}
	vars := environment(fields)
	err = unknown(prefix, fields)
	if wrong := parse(prefix, cfg, vars); wrong != nil {
		err = errors.Join(err, misread(prefix, cfg, vars, wrong))
	}
	return lines(err)
}

// lines returns a list of errors, each of which can be understood without the others: a log may show one line of them.
func lines(err error) error {
	if err == nil {
		return nil
	}
	list, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("config: %w", err)
	}
	var errs []error
	for _, err := range list.Unwrap() {
		errs = append(errs, lines(err))
	}
	return errors.Join(errs...)
}

func parse(prefix string, cfg any, vars map[string]string) error {
	return env.ParseWithOptions(cfg, env.Options{
		Prefix: prefix, Environment: vars,
		FuncMap: map[reflect.Type]env.ParserFunc{reflect.TypeFor[time.Duration](): duration},
	})
}

// duration takes what [time.ParseDuration] does and the plain -1, which is off for many fields.
func duration(value string) (any, error) {
	if value == "-1" {
		return time.Duration(-1), nil
	}
	return time.ParseDuration(value)
}

// environment returns the values of the variables of the fields. If ONCEBOX_X is not set, X counts for the names in unprefixed. The value 0 for the
// retention of the outbox means no retention; in the struct, 0 means the default. Each variable is looked up by its name, because the cache of go test
// notices a change only of variables that were looked up by name (go help test).
func environment(fields []env.FieldParams) map[string]string {
	vars := map[string]string{}
	for _, f := range fields {
		if value, set := os.LookupEnv(f.Key); set {
			vars[f.Key] = value
		}
	}
	for _, name := range unprefixed {
		ours := prefix + name
		if !slices.ContainsFunc(fields, func(f env.FieldParams) bool { return f.Key == ours }) || vars[ours] != "" {
			continue
		}
		// A variable that is set to nothing counts as not set.
		if value := os.Getenv(name); value != "" {
			vars[ours] = value
		}
	}
	if d, err := time.ParseDuration(vars[retention]); err == nil && d == 0 {
		vars[retention] = outbox.NoRetention.String()
	}
	return vars
}
