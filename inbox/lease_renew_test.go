package inbox_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// withinALease runs fn with longer and longer leases, until fn reports that none has ended only because the machine was slow.
func withinALease(t *testing.T, fn func(w *world, ttl time.Duration) bool) {
	t.Helper()
	for ttl := 2 * time.Second; !fn(newWorld(t), ttl); ttl *= 2 {
		require.Less(t, ttl, time.Minute, "not once, however long the lease")
	}
}

// hang keeps renewals from being answered: those whose number the condition selects, counted from 1.
func (w *world) hang(which string) {
	w.exec("CREATE SEQUENCE renewals")
	w.exec(`CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE nth bigint := nextval('renewals'); BEGIN
		IF ` + which + ` THEN PERFORM pg_sleep(600); END IF; RETURN NEW; END $$`)
	w.exec("CREATE TRIGGER hang BEFORE UPDATE ON oncebox_lease FOR EACH ROW WHEN (OLD.task = 'inbox.message') EXECUTE FUNCTION hang()")
	w.exec("CREATE TABLE first AS SELECT now() + interval '1 day' AS lease_until")
}

// awaitTrue asks until the answer is yes, or ctx is done.
func (w *world) awaitTrue(ctx context.Context, question string) {
	for ctx.Err() == nil && !column[bool](w.t, w.db.DB, question)[0] {
		_ = backoff.Wait(ctx, 10*time.Millisecond) // the loop looks at ctx
	}
}

func TestRenewalThatHangsDoesNotLoseTheLease(t *testing.T) {
	t.Parallel()
	withinALease(t, func(w *world, ttl time.Duration) bool {
		w.hang("nth = 1")
		h := w.process(func(c *inbox.Config) { c.LeaseTTL = ttl }).WrapLeased("billing",
			messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
				w.exec("UPDATE first SET lease_until = (SELECT lease_until FROM oncebox_lease WHERE task = 'inbox.message')")
				w.awaitTrue(ctx, "SELECT l.lease_until > f.lease_until FROM oncebox_lease l, first f WHERE l.task = 'inbox.message'")
				return context.Cause(ctx)
			}))
		err := h.Handle(t.Context(), ordered("m", "o1"))
		if err != nil {
			require.ErrorIs(t, err, inbox.ErrLeaseLost)
		}
		return err == nil
	})
}

// A message that was handled needs no lease any more.
func TestHandledMessageIsSettledWhileARenewalHangs(t *testing.T) {
	t.Parallel()
	withinALease(t, func(w *world, ttl time.Duration) bool {
		w.hang("true")
		var log lines
		box := inbox.New(w.units, &inbox.Config{LeaseTTL: ttl, Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
		h := box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
			w.awaitTrue(ctx, "SELECT is_called FROM renewals")
			return nil
		}))
		require.NoError(t, h.Handle(t.Context(), ordered("m", "o1")))
		w.nothingLeft()
		return !strings.Contains(log.String(), "lease")
	})
}
