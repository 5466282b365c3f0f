package idempotency

import (
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/telemetry"
)

const (
	// DefaultTTL is how long an answer is kept.
	DefaultTTL = 24 * time.Hour
	// DefaultAuditRetention is how long the audit is kept.
	DefaultAuditRetention = 400 * 24 * time.Hour
	// KeepForever keeps answers until [Store.Release] or a statement of yours removes them, and the audit until a statement of yours does.
	KeepForever = time.Duration(-1)
)

// Config configures a [Store]. Stores with different configurations may share a table: one with a longer TTL for
// payments, for example.
type Config struct {
	// Schema holds the table. Default: the first one of the search_path that connections begin with.
	Schema string
	// Pooler says that a transaction-mode pooler stands before the database: no prepared statements. Default: false.
	Pooler bool
	// DefaultTenant is the tenant of scopes without a tenant. Default: "default".
	DefaultTenant string
	// TTL is how long an answer is kept, from its completion; -1 (KeepForever): for ever. Default: 24h.
	TTL time.Duration `env:"TTL"`
	// AuditRetention is how long audit entries are kept. At least 24h; -1 keeps them for ever. Default: 9600h, which is 400 days.
	AuditRetention time.Duration
	// PurgeBatch is how many expired keys one statement removes. Default: 5000 rows.
	PurgeBatch int `env:"PURGE_BATCH"`

	// Cache is how many answers of up to 4 KiB, headers included, are also kept in memory after their first retry. Further retries then cost no
	// statement. An answer that was removed, by Release or by hand, may be served for a minute longer by other processes. -1: no cache. Default: 4096.
	Cache int `env:"CACHE"`

	// Telemetry is where logs, traces and metrics go. A trace has the spans of purges. Default: slog.Default() and the global providers.
	Telemetry telemetry.Config
}

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	var errs []error
	if c.TTL < 0 && c.TTL != KeepForever {
		errs = append(errs, fmt.Errorf("idempotency: Config.TTL is %s: give a duration, or -1 (KeepForever)", c.TTL))
	}
	if c.AuditRetention != 0 && c.AuditRetention != KeepForever && c.AuditRetention < 24*time.Hour {
		errs = append(errs, fmt.Errorf("idempotency: Config.AuditRetention is %s: give 24h or more, or -1 to keep the audit for ever", c.AuditRetention))
	}
	if c.PurgeBatch < 0 {
		errs = append(errs, fmt.Errorf("idempotency: Config.PurgeBatch is %d: give a number of rows", c.PurgeBatch))
	}
	if c.DefaultTenant != "" {
		probe := Scope{Tenant: c.DefaultTenant, Anonymous: true, Key: "k"}
		if err := probe.validate(); err != nil {
			errs = append(errs, fmt.Errorf("idempotency: Config.DefaultTenant: %w", err))
		}
	}
	return errors.Join(errs...)
}

// WithDefaults returns a copy in which the fields that are zero have their defaults. A nil Config counts as the zero one.
func (c *Config) WithDefaults() Config {
	var out Config
	if c != nil {
		out = *c
	}
	if out.TTL == 0 {
		out.TTL = DefaultTTL
	}
	if out.AuditRetention == 0 {
		out.AuditRetention = DefaultAuditRetention
	}
	if out.PurgeBatch <= 0 {
		out.PurgeBatch = 5000
	}
	if out.Cache == 0 {
		out.Cache = 4096
	}
	if out.DefaultTenant == "" {
		out.DefaultTenant = "default"
	}
	return out
}
