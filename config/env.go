package config

import (
	"fmt"
	"os"
	"reflect"
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

// FromEnv returns the configuration that the environment describes, validated. Variables that are not set leave the
// defaults.
func FromEnv() (Config, error) {
	var c Config
	if err := Env(prefix, &c); err != nil {
		return c, err
	}
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	return c, nil
}

// Env fills a struct with `env` tags from the variables that begin with prefix. It is how a program configures what it
// chooses itself, a broker adapter for example. A [time.Duration] may be a plain -1.
func Env(prefix string, cfg any) error {
	d := durations{}
	if err := env.ParseWithOptions(cfg, env.Options{
		Prefix: prefix, Environment: environment(os.Environ()),
		OnSet: d.next, FuncMap: map[reflect.Type]env.ParserFunc{reflect.TypeFor[time.Duration](): d.parse},
	}); err != nil {
		return fmt.Errorf("config: read the environment: %w", err)
	}
	return nil
}

// durations reads fields of type [time.Duration]. Package env names the variable first, and then has its value read.
type durations struct{ variable string }

func (d *durations) next(variable string, _ any, _ bool) { d.variable = variable }

// parse takes what [time.ParseDuration] does and the plain -1, which is off for many fields.
func (d *durations) parse(value string) (any, error) {
	if value == "-1" {
		return time.Duration(-1), nil
	}
	duration, err := time.ParseDuration(value)
	if err != nil {
		return nil, fmt.Errorf("%s is %q: give a duration such as 500ms, 2s or 168h, or -1 where that is off", d.variable, value)
	}
	return duration, nil
}

// environment is the process's, with two conveniences: names without our prefix where ours are not set, and 0 for the retention
// of the outbox. In the struct a zero is the default.
func environment(list []string) map[string]string {
	vars := env.ToMap(list)
	for _, name := range unprefixed {
		// A variable that is set to nothing is as good as one that is not set.
		if vars[prefix+name] == "" && vars[name] != "" {
			vars[prefix+name] = vars[name]
		}
	}
	if d, err := time.ParseDuration(vars[retention]); err == nil && d == 0 {
		vars[retention] = outbox.NoRetention.String()
	}
	return vars
}
