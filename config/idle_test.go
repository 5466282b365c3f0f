package config_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// A process is frozen while it handles a message, and has the lock of the message's key. The broker gives the message to another one.
func TestKeyOfAFrozenProcessFlowsAgain(t *testing.T) {
	t.Parallel()
	base := pgtest.Migrated(t)
	_, err := base.ExecContext(t.Context(), "CREATE TABLE effects (what text)")
	require.NoError(t, err)
	open := func(idle time.Duration, handler func(context.Context, *uow.Manager) error) messaging.Handler {
		db, err := config.OpenDB(t.Context(), config.Config{DatabaseURL: base.DSN, IdleInTransaction: idle})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		units := uow.New(db, nil)
		return inbox.New(units, nil).Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
			_, err := units.DB(ctx).NewRaw("INSERT INTO effects VALUES ('once')").Exec(ctx)
			if err != nil {
				return err
			}
			return handler(ctx, units)
		}))
	}
	frozen, frozenFor := make(chan struct{}, 9), make(chan struct{})
	thaw := sync.OnceFunc(func() { close(frozenFor) })
	defer thaw()
	first := open(300*time.Millisecond, func(context.Context, *uow.Manager) error {
		frozen <- struct{}{}
		<-frozenFor
		return nil
	})
	second := open(0, func(context.Context, *uow.Manager) error { return nil })
	message := func() *messaging.Message {
		return messaging.NewMessage(event.Envelope{
			ID: "a", Type: "order.placed", Source: "shop", TenantID: "t", Topic: "order", AggregateType: "order", AggregateID: "o1",
		}, 1, nil)
	}
	woken := make(chan error, 1)
	go func() { woken <- first.Handle(t.Context(), message()) }()
	await.Receive(t, frozen, "a process that is frozen")
	await.True(t, func() bool { return second.Handle(t.Context(), message()) == nil }, "the other process to get the key")
	thaw()
	require.NoError(t, <-woken, "its session is gone, and when it runs again it is too late")
	require.Equal(t, 1, pgCount(t, base))
}

func pgCount(t *testing.T, db *pgtest.DB) (n int) {
	t.Helper()
	require.NoError(t, db.NewRaw("SELECT count(*) FROM effects").Scan(t.Context(), &n))
	return n
}

func TestIdleInTransactionIsTheUsersToSet(t *testing.T) {
	show := func(cfg config.Config) (value string) {
		t.Helper()
		db, err := config.OpenDB(t.Context(), cfg)
		require.NoError(t, err)
		defer db.Close()
		require.NoError(t, db.NewRaw("SHOW idle_in_transaction_session_timeout").Scan(t.Context(), &value))
		return value
	}
	url := pgtest.URL(t)
	require.Equal(t, "5min", show(config.Config{DatabaseURL: url}))
	require.Equal(t, "7s", show(config.Config{DatabaseURL: url, IdleInTransaction: 7 * time.Second}))
	server := show(config.Config{DatabaseURL: url, IdleInTransaction: -1})
	require.Equal(t, server, show(config.Config{DatabaseURL: url, Pooler: true}), "it may refuse parameters")
	require.Equal(t, "9s", show(config.Config{DatabaseURL: url + "&idle_in_transaction_session_timeout=9s"}))
	require.ErrorContains(t, (&config.Config{IdleInTransaction: -5}).Validate(), "IdleInTransaction")
}
