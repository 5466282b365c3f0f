package console

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/facts"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/outbox"
)

// minSecret is the least length of Config.Secret in bytes: the size of the hash that signs with it.
const minSecret = 32

// defaultRefresh is the default of Config.Refresh.
const defaultRefresh = 15 * time.Second

// Config configures a Console.
type Config struct {
	// Outbox is the store whose dead letters, delayed events and tenants are shown. At least one of Outbox, Inbox and Idempotency is required. Default:
	// none, the console has no pages about the outbox.
	Outbox *outbox.Store
	// Inbox is the inbox whose consumers and dead letters are shown. Default: none, the console has no pages about the inbox.
	Inbox *inbox.Inbox
	// Idempotency is the store whose steps of unknown outcome are shown. Default: none, the console has no page about steps.
	Idempotency *idempotency.Store

	// Title is the name of the installation that each page shows, such as "shop, production". Default: "oncebox".
	Title string
	// TraceURL is the address of a trace, with {trace_id} in place of the id, for example "https://tempo.example.com/trace/{trace_id}". Default: none,
	// ids of traces are shown without a link.
	TraceURL string
	// Refresh is the pause after which a page loads itself again, at least 1s. Each person can turn the loading off in the browser. Pages with a form
	// never load themselves again. Default: 15s. With -1 no page loads itself again.
	Refresh time.Duration
	// ReadOnly makes the console refuse every change, whatever the [Authorizer] allows. Default: false.
	ReadOnly bool
	// Secret is the key that signs the tokens of forms, at least 32 bytes. Processes whose consoles have the same address need the same Secret. Default:
	// a random key, so a form of one process is refused by another.
	Secret []byte
	// Logger gets an error for each page or action that failed, and a line for each change. Default: that of Outbox, else of Inbox, else of
	// Idempotency.
	Logger *slog.Logger
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil Config is the zero value.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Title = cmp.Or(out.Title, "oncebox")
	out.Refresh = cmp.Or(out.Refresh, defaultRefresh)
	return out
}

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	var errs []error
	if c.Outbox == nil && c.Inbox == nil && c.Idempotency == nil {
		errs = append(errs, errors.New("Config.Outbox, Inbox and Idempotency are nil: set the ones in use"))
	}
	if len(c.Secret) > 0 && len(c.Secret) < minSecret {
		errs = append(errs, fmt.Errorf("Config.Secret has %d bytes: give at least %d random ones, or none", len(c.Secret), minSecret))
	}
	if c.Refresh > 0 && c.Refresh < time.Second {
		errs = append(errs, fmt.Errorf("Config.Refresh is %s: give at least a second, or -1 for never", c.Refresh))
	}
	if c.TraceURL != "" {
		u, err := url.Parse(strings.ReplaceAll(c.TraceURL, facts.TraceID, "0"))
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || !strings.Contains(c.TraceURL, facts.TraceID) {
			errs = append(errs, fmt.Errorf("Config.TraceURL %q is no address of a trace: give one as https://tempo.example.com/trace/%s",
				c.TraceURL, facts.TraceID))
		}
	}
	return errors.Join(errs...)
}

// logger returns the logger of the first store that is configured. There is at least one.
func (c *Config) logger() *slog.Logger {
	switch {
	case c.Logger != nil:
		return c.Logger
	case c.Outbox != nil:
		return c.Outbox.Telemetry().Logger
	case c.Inbox != nil:
		return c.Inbox.Telemetry().Logger
	default:
		return c.Idempotency.Telemetry().Logger
	}
}
