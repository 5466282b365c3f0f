package behind_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/ops/behind"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The load of a consumer has the tenants of the latest events of its topic, and how long a message waits.
func TestWhoKeepsAConsumerBehind(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Outbox, pgtest.Inbox)
	events, box := outbox.NewStore(db.DB, nil), inbox.New(uow.New(db.DB, nil), nil)
	queue := behind.Queue{Consumer: "mailer@2", Topic: "order", Since: time.Now().Add(-time.Hour), Messages: 2400}
	load, err := queue.Read(t.Context(), events, box)
	require.NoError(t, err)
	require.Empty(t, load.Text(), "nothing is known")

	for _, statement := range []string{
		`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
			SELECT gen_random_uuid(), now(), i % 64, CASE WHEN i % 10 > 1 THEN 'initech' WHEN i % 10 = 1 THEN 'acme' ELSE 'globex' END, 'order',
				CASE WHEN i % 3 = 0 THEN 'order.shipped' ELSE 'order.placed' END, 'test', '' FROM generate_series(1, 1000) i`,
		`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
			SELECT gen_random_uuid(), now(), i % 64, 'umbrella', 'parcel', 'parcel.sent', 'test', '' FROM generate_series(1, 1000) i`,
		`INSERT INTO oncebox_history (part, at, consumer, went, counted) SELECT 'inbox', date_trunc('minute', clock_timestamp()) - n * interval '1 minute',
			'mailer', 1200, 60 FROM generate_series(0, 1) n`,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	load, err = queue.Read(t.Context(), events, box)
	require.NoError(t, err)
	require.Regexp(t, `^it handles 20 a second, so a message that comes now waits for about 2m; of the events for it since \d\d:\d\d:\d\d UTC, `+
		`80 % are of the tenant initech, 10 % are of the tenant acme, `+
		`10 % are of the tenant globex$`, load.Text())
	require.WithinDuration(t, time.Now().Add(-15*time.Minute), load.Since, 5*time.Minute, "it is counted over 15 minutes at most")

	queue.Precision = count.AtLeast
	load, err = queue.Read(t.Context(), nil, box)
	require.NoError(t, err)
	require.Equal(t, "it handles 20 a second, so a message that comes now waits for at least 2m", load.Text())
	queue.Late = 90 * time.Second
	load, err = queue.Read(t.Context(), nil, box)
	require.NoError(t, err)
	require.Equal(t, "it handles 20 a second", load.Text(), "the broker has reported how late the messages are")
	queue.Since = time.Now()
	load, err = queue.Read(t.Context(), events, nil)
	require.NoError(t, err)
	require.Empty(t, load.Text(), "the events are older than the backlog")
}
