package projector_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A broker that takes its time must not hold back VACUUM: while a batch is on its way, no transaction of the relay is open.
func TestNoTransactionIsOpenWhilePublishing(t *testing.T) {
	f := newFixture(t)
	store := f.through(nil, func(u *url.URL) {
		query := u.Query()
		query.Set("application_name", f.db.Schema)
		u.RawQuery = query.Encode()
	})
	g := &gate{recorder: f.pub, entered: make(chan struct{}, 1), open: make(chan struct{})}
	f.add("a", "slow")
	cfg := quick()
	cfg.Lease, cfg.Renew, cfg.PublishTimeout = 2*time.Hour, time.Hour, 30*time.Minute // or the deadline would end a transaction
	p := f.relay(g, cfg, store)
	f.run(p)
	t.Cleanup(g.release)
	<-g.entered
	count := func(condition string) (n int) {
		require.NoError(t, f.db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE application_name = ? AND ("+condition+")", f.db.Schema).Scan(&n))
		return n
	}
	require.Positive(t, count("true"), "the relay is connected")
	f.eventually("all transactions have ended", func() bool { return count("xact_start IS NOT NULL OR backend_xmin IS NOT NULL") == 0 })
}
