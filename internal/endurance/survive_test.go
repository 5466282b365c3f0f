//go:build unix && nightly

package endurance

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// rounds is how many rounds of trouble there are.
const rounds = 5

// Consumers as processes, with some handlers that fail: they are killed, and there are one, four and two of them. Every effect
// is there once, in the order of its key.
func TestConsumersAreKilledAndScaled(t *testing.T) {
	f := newFleet(t, pulsartest.Server(t))
	f.add(1)
	f.add(3)
	for range rounds {
		f.kill()
		f.add(1)
	}
	f.remove(2)
	f.finish("kill")
}

// Consumers are frozen for longer than every lease, and the broker is killed: a broker that misses those that are silent for 10 to
// 15 seconds, of the test's own.
func TestConsumersAreFrozenAndTheirBrokerIsKilled(t *testing.T) {
	server, err := devenv.Pulsar(t.Context(), &devenv.Options{
		Own: true, Volatile: true, PulsarSettings: map[string]string{"keepAliveIntervalSeconds": "5"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	t.Run("freeze", func(t *testing.T) {
		f := newFleet(t, server)
		f.add(2)
		for range rounds {
			f.freeze()
		}
		f.finish("freeze")
	})
	t.Run("broker", func(t *testing.T) {
		f := newFleet(t, server)
		f.add(2)
		for range rounds {
			f.goesOn("", 5*backlog)
			require.NoError(t, server.Kill())
			require.NoError(t, server.Restart(t.Context()))
			f.goesOn("", backlog)
		}
		f.finish("broker")
	})
}

// fleet are the consumers of a site, under load.
type fleet struct {
	*site

	server  *devenv.PulsarServer
	present []*process
	all     []*process
	began   time.Time
	stop    func() // the load

	killed, frozen, removed int
}

func newFleet(t *testing.T, server *devenv.PulsarServer) *fleet {
	t.Helper()
	f := &fleet{site: newSite(t, server), server: server, began: time.Now()}
	f.stop = f.load()
	return f
}

// add starts processes, at once, and waits until each has handled something.
func (f *fleet) add(n int) {
	f.t.Helper()
	first := len(f.all)
	for range n {
		p := start(f.t, task{
			Name: fmt.Sprintf("c%02d", len(f.all)), Database: f.db.DSN, Pulsar: f.server.URL, Admin: f.server.AdminURL, Topic: f.topic,
			AckFirst: os.Getenv("ENDURANCE_WITHOUT") == "commit",
		})
		f.all, f.present = append(f.all, p), append(f.present, p)
	}
	for _, p := range f.all[first:] {
		f.goesOn(p.name, 50)
	}
}

// kill ends one process in the middle of its work.
func (f *fleet) kill() {
	f.t.Helper()
	f.goesOn(f.present[0].name, 50)
	f.present[0].kill()
	f.present = f.present[1:]
	f.killed++
}

// remove ends processes as an orchestrator does.
func (f *fleet) remove(n int) {
	f.t.Helper()
	for _, p := range f.present[:n] {
		p.stop()
		f.removed++
	}
	f.present = f.present[n:]
	f.goesOn("", backlog)
}

// freeze stops a process until all its leases have ended, and others have got what it had: its partitions, its parked keys.
func (f *fleet) freeze() {
	f.t.Helper()
	p := f.present[0]
	f.goesOn(p.name, 50)
	thaw := p.freeze()
	last := f.mustCount("SELECT max(nth) FROM effects")
	its := f.mustCount("SELECT count(DISTINCT key) FROM effects e WHERE process = ? AND nth = (SELECT max(nth) FROM effects l WHERE l.key = e.key)", p.name)
	f.eventually("others have got all keys of "+p.name, its*9/10, `SELECT count(DISTINCT key) FROM effects e WHERE process <> ? AND nth > ?
		AND (SELECT process FROM effects l WHERE l.key = e.key AND nth <= ? ORDER BY nth DESC LIMIT 1) = ?`, p.name, last, last, p.name)
	await.True(f.t, seldom(func() bool {
		return f.mustCount("SELECT count(*) FROM inbox_key WHERE owner IS NOT NULL AND due_at < clock_timestamp() - ?::interval", parkedLease.String()) == 0
	}), "others have got what it had parked")
	thaw()
	f.goesOn(p.name, 50)
	f.frozen++
}

// finish ends it all and demands that nothing went wrong.
func (f *fleet) finish(what string) {
	f.t.Helper()
	f.stop()
	drained := f.drained()
	v := f.judge()
	received := 0
	for _, p := range f.all {
		received += p.received.count()
	}
	f.explain(v.wronged)
	parked := f.mustCount("SELECT count(*) FROM parkings")
	late := f.mustCount("SELECT count(*) FROM parkings WHERE late OR key NOT LIKE '%0'")
	f.t.Logf("endurance %s processes=%d killed=%d frozen=%d removed=%d messages=%d received=%d parked=%d "+
		"effects_twice=%d order_violations=%d lost=%d parked_by_replay=%d total=%s",
		what, len(f.all), f.killed, f.frozen, f.removed, f.published.Load(), received, parked, v.twice, v.disorder, v.lost, late,
		time.Since(f.began).Round(time.Second))
	require.Zero(f.t, v.twice+v.disorder+v.lost, strings.Join(v.details, "\n"))
	require.True(f.t, drained, "nothing waits")
	require.Zero(f.t, late, "what is parked waits for a message that failed")
	// The run was hard enough to prove something.
	require.Greater(f.t, received, int(f.published.Load()), "messages came again")
	require.NotZero(f.t, parked, "handlers failed")
	for _, p := range f.present {
		p.stop()
	}
}

// explain prints the story of a key with which something went wrong: which message came to which process, and which had effects.
func (f *fleet) explain(key string) {
	f.t.Helper()
	if key == "" {
		return
	}
	var effects []string
	require.NoError(f.t, f.db.NewRaw("SELECT process || ' #' || n || '@' || to_char(at, 'SS.MS') FROM effects WHERE key = ? ORDER BY nth", key).
		Scan(f.t.Context(), &effects))
	f.t.Logf("effects of %s: %s", key, strings.Join(effects, " "))
	for _, p := range f.all {
		f.t.Logf("%s received of %s: %s", p.name, key, p.received.history(key))
	}
}
