package doctor

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// Target is the service that is examined.
type Target struct {
	// DB is the database, opened as the service opens it.
	DB *bun.DB
	// Config is the configuration of the service, with the shared settings filled in ([config.Config.Shared]).
	Config config.Config
	// Duty is the duty of the database role that the service uses, see migrations.Grants. Default: migrations.Service.
	Duty migrations.Duty
	// Broker is the service's broker; nil if it has none.
	Broker *brokers.Kind
	// Topics are the topics to examine. Default: all topics of the broker.
	Topics []string
	// LongTransaction is the age from which an open transaction is a finding: rows that were published and deleted
	// since it began cannot be reclaimed. Default: 10m.
	LongTransaction time.Duration
	// Now returns the time of this machine. Default: time.Now.
	Now func() time.Time
}

// examination is a target, and the stores that several checks use.
type examination struct {
	Target
	store *outbox.Store
	inbox *inbox.Inbox
}

// check looks for one kind of fault. Its name is part of the output.
type check struct {
	name string
	run  func(*examination, context.Context) ([]Finding, error)
}

// Examine runs all checks and returns their findings. An error of a check becomes a finding, so that the others still
// run. done, if it is not nil, is called after each check.
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
	// Pooler is always set here, so that no statement is prepared: the checks have to work through a pooler even if the
	// service's setting is wrong.
	forOutbox, forInbox := t.Config.Outbox, t.Config.Inbox
	forOutbox.Pooler, forInbox.Pooler = true, true
	e := &examination{Target: t, store: outbox.NewStore(t.DB, &forOutbox), inbox: inbox.New(uow.New(t.DB, &t.Config.UoW), &forInbox)}
	all := append(settingsChecks(), serverChecks()...)
	all = append(all, tableChecks()...)
	if t.Broker != nil {
		all = append(all, check{diagnosis.Broker, (*examination).broker})
	}
	var found []Finding
	for n, c := range all {
		list, err := c.run(e, ctx)
		found = append(found, list...)
		if err != nil {
			found = append(found, finding(c.name, Unknown, "mend what the error says, and run oncebox doctor again", "this check could not be made: %v", err))
		}
		if done != nil {
			done(c.name, n+1, len(all))
		}
	}
	return found
}

// scan reads one row. It uses the plain connection, because bun would prepare nothing but write the
// arguments into the text.
func (e *examination) scan(ctx context.Context, query string, args []any, dest ...any) error {
	return e.DB.DB.QueryRowContext(ctx, query, args...).Scan(dest...)
}

// list reads rows of text columns.
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
