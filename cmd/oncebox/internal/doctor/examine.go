package doctor

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// Target is the service to examine.
type Target struct {
	// DB is the database, opened as the service opens it.
	DB *bun.DB
	// Config is the configuration of the service, with the shared settings filled in ([config.Config.Shared]).
	Config config.Config
	// Duty is what the role of the database does. Default: migrations.Service.
	Duty migrations.Duty
	// Pulsar is the broker. nil: the service has none.
	Pulsar *pulsar.Config
	// Topics are those to look at. Default: all of the namespace.
	Topics []string
	// LongTransaction is how old a transaction may be. Rows that were published and deleted since it began cannot be reclaimed. Default: 10m.
	LongTransaction time.Duration
	// Now is the clock of this machine. Default: time.Now.
	Now func() time.Time
}

// examination is a target with what the checks share.
type examination struct {
	Target
	store *outbox.Store
	inbox *inbox.Inbox
}

// check looks for faults of one kind.
type check struct {
	name string
	run  func(*examination, context.Context) ([]Finding, error)
}

// Examine runs all checks, and returns what they find. done, if it is not nil, is called after each check.
func Examine(ctx context.Context, t Target, done func(name string, n, of int)) []Finding {
	if t.Duty == "" {
		t.Duty = migrations.Service
	}
	if t.LongTransaction == 0 {
		t.LongTransaction = ops.LongTransaction
	}
	if t.Now == nil {
		t.Now = time.Now
	}
	// Nothing is prepared: the checks work through a pooler too, whatever the setting is.
	forOutbox, forInbox := t.Config.Outbox, t.Config.Inbox
	forOutbox.Pooler, forInbox.Pooler = true, true
	e := &examination{Target: t, store: outbox.NewStore(t.DB, &forOutbox), inbox: inbox.New(uow.New(t.DB, &t.Config.UoW), &forInbox)}
	all := append(settingsChecks(), serverChecks()...)
	all = append(all, tableChecks()...)
	if t.Pulsar != nil {
		all = append(all, brokerChecks()...)
	}
	var found []Finding
	for n, c := range all {
		list, err := c.run(e, ctx)
		found = append(found, list...)
		if err != nil {
			found = append(found, finding(c.name, Unknown, "mend what the error says, and run this again", "it could not be looked at: %v", err))
		}
		if done != nil {
			done(c.name, n+1, len(all))
		}
	}
	return found
}

// scan reads one row.
func (e *examination) scan(ctx context.Context, query string, args []any, dest ...any) error {
	return e.DB.DB.QueryRowContext(ctx, query, args...).Scan(dest...)
}

// list reads rows of texts.
func (e *examination) list(ctx context.Context, query string, columns int, args ...any) ([][]string, error) {
	return pgsql.Collect(pgsql.QueryPlain(ctx, e.DB.DB, query, args...), func(scan pgsql.Scan, row *[]string) error {
		*row = make([]string, columns)
		dest := make([]any, columns)
		for n := range *row {
			dest[n] = &(*row)[n]
		}
		return scan(dest...)
	})
}
