// Package configs has what the Validate and WithDefaults of our Configs share.
package configs

import (
	"errors"
	"fmt"
	"time"
)

// Check collects the fields of a Config that cannot be used.
type Check struct {
	config string
	errs   []error
}

// CheckOf begins a check. config is the type as its users know it: "outbox: Config".
func CheckOf(config string) *Check { return &Check{config: config} }

// That refuses a field unless ok. advice says what to give.
func (c *Check) That(ok bool, field string, value any, advice string) {
	if !ok {
		c.Add(fmt.Errorf("%s.%s is %v: %s", c.config, field, value, advice))
	}
}

// AtLeast refuses a duration that is shorter than least. 0, which means the default, and -1, which turns a limit off, are fine.
func (c *Check) AtLeast(field string, value, least time.Duration, advice string) {
	c.That(value == 0 || value == -1 || value >= least, field, value, advice)
}

// Add adds what another check has found. nil adds nothing.
func (c *Check) Add(errs ...error) { c.errs = append(c.errs, errs...) }

// Err returns an error that names all refused fields, or nil.
func (c *Check) Err() error { return errors.Join(c.errs...) }

// Copy returns a copy of a Config. nil is the zero Config.
func Copy[T any](config *T) (out T) {
	if config != nil {
		out = *config
	}
	return out
}
