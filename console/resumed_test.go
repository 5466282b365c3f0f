package console_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
)

// After an operator has resumed a consumer or a tenant, or has replayed an event, the last count of the broker is no all-clear: it is older than that.
func TestAnOldCountIsNoAllClear(t *testing.T) {
	s := newShop(t)
	exec := func(statement string) {
		t.Helper()
		_, err := s.DB.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	for _, table := range []string{"inbox_process", "inbox_topic", "inbox_consumer"} {
		exec("DELETE FROM " + table)
	}
	exec(`INSERT INTO inbox_consumer (consumer, beat_at) VALUES ('mailer', now())`)
	exec(`INSERT INTO inbox_topic (topic, consumer, subscribed, backlog, settled, connections, unattended, asked_at) VALUES
		('order', 'mailer', true, 0, 0, 1, 0, clock_timestamp())`)
	exec(`INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, progress_at, seen_until) VALUES
		('mailer', 'order', gen_random_uuid(), 'host:1', 'CONNECTED', now() - interval '21 minutes', 0, now(), now() + interval '1 hour')`)
	b, by := s.serve(s.config()), operator.By{Actor: "ann", Reason: "done"}
	calm := func(why string) {
		t.Helper()
		require.Contains(t, b.page("").text(), "all is well", why)
		require.Contains(t, b.page("").text(), "Messages waiting 0 wait for consumers at the broker", why)
		require.Contains(t, b.page("stuck").text(), "Nothing is stuck.", why)
	}
	counting := func(why string) {
		t.Helper()
		text := b.page("").text()
		require.NotContains(t, text, "all is well", why)
		require.Contains(t, text, "wait How many messages wait for mailer at the broker is counted again", why)
		require.Contains(t, text, "Messages waiting counting messages that wait for consumers at the broker", why)
		require.Contains(t, b.page("consumers").text(), "At the broker counting", why)
		page := b.page("consumer?name=mailer").text()
		require.Contains(t, page, "At the broker counting", why)
		require.Contains(t, page, "order counting", why)
		stuck := b.page("stuck").text()
		require.Contains(t, stuck, "Nothing is stuck in the database.", why)
		require.Contains(t, stuck, "mailer: the broker counted its messages before an operator set them in motion", why)
	}
	calm("nothing was done")

	all := s.App.Inbox.Consumers()
	require.NoError(t, all.Pause(t.Context(), "mailer", 0, by))
	require.NotContains(t, b.page("").text(), "counted again", "it is paused")
	require.NoError(t, all.Resume(t.Context(), "mailer", by))
	counting("the consumer is resumed")
	exec("UPDATE inbox_topic SET asked_at = clock_timestamp()")
	calm("the count is newer")
	exec("UPDATE inbox_pause SET ends_at = clock_timestamp()")
	counting("the pause has ended by itself")
	exec("UPDATE inbox_topic SET asked_at = clock_timestamp()")

	require.NoError(t, s.App.Outbox.Tenants().Pause(t.Context(), "initech", by))
	require.NoError(t, s.App.Outbox.Tenants().Resume(t.Context(), "initech", by))
	counting("a tenant is resumed")
	exec("UPDATE inbox_topic SET asked_at = (SELECT max(at) FROM oncebox_audit WHERE part = 'outbox') + interval '1 second'")
	counting("its events are on their way")
	exec("UPDATE oncebox_audit SET at = at - interval '10 seconds'")
	calm("the count is some seconds newer")

	exec("INSERT INTO oncebox_audit (part, actor, action, tenant_id) VALUES ('outbox', 'ann', 'discard', 'initech'), ('inbox', 'ann', 'replay', 'initech')")
	calm("neither makes messages wait at the broker")
	exec("INSERT INTO oncebox_audit (part, actor, action, tenant_id) VALUES ('outbox', 'ann', 'replay', 'initech')")
	counting("an event is replayed")
	exec("UPDATE inbox_process SET state = 'STORED'")
	require.Contains(t, b.page("").text(), "all is well", "there is no broker")
}
