package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/caarlos0/env/v11"
)

// prefix stands before every variable.
const prefix = "ONCEBOX_"

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
// chooses itself, a broker adapter for example.
func Env(prefix string, cfg any) error {
	if err := env.ParseWithOptions(cfg, env.Options{Prefix: prefix, Environment: environment(os.Environ())}); err != nil {
		return fmt.Errorf("config: read the environment: %w", err)
	}
	return nil
}

// environment is the process's, with two conveniences: names without our prefix where ours are not set, and the plain
// numbers 0 and -1 for retentions, which are no durations in Go.
func environment(list []string) map[string]string {
	vars := env.ToMap(list)
	for _, name := range unprefixed {
		// A variable that is set to nothing is as good as one that is not set.
		if vars[prefix+name] == "" && vars[name] != "" {
			vars[prefix+name] = vars[name]
		}
	}
	for name, value := range vars {
		if !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, "_RETENTION") {
			continue
		}
		switch value {
		case "-1":
			vars[name] = "-1ns" // KeepForever
		case "0", "0s":
			if name == prefix+"OUTBOX_RETENTION" {
				vars[name] = "-2ns" // outbox.NoRetention: a zero in the struct is the default
			}
		}
	}
	return vars
}
