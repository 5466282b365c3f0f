package httpmwtest

import (
	"flag"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/await"
)

var (
	urlFlag    = flag.String("url", "", "where the service is that TestTarget tests; default: one of its own")
	targetFlag = flag.String("target", "../../examples/orders/shop/testdata/conformance.json", "the description of that service")
)

// TestTarget runs the suite against a service that runs somewhere, or against its own with each kind of pool.
func TestTarget(t *testing.T) {
	t.Parallel()
	if *urlFlag == "" {
		for _, pool := range pools() {
			t.Run(pool, func(t *testing.T) {
				t.Parallel()
				Run(t, newService(t, pool).start(t, fault{}))
			})
		}
		return
	}
	target, err := ReadTarget(*targetFlag)
	require.NoError(t, err)
	target.URL = *urlFlag
	Run(t, target)
}

// A target says no more than it has to.
func TestTargetWithTheLeast(t *testing.T) {
	t.Parallel()
	target := newService(t, "plain").start(t, fault{})
	Run(t, Target{URL: target.URL, Create: target.Create, ChangedBody: target.ChangedBody})
}

// Where a target has a setting of its own, the suite expects that.
func TestTargetThatDiffers(t *testing.T) {
	t.Parallel()
	t.Run("another status of keys that are used again", func(t *testing.T) {
		t.Parallel()
		target := newService(t, "pipelined").start(t, fault{config: func(c *httpmw.IdempotencyConfig) { c.ReusedStatus = http.StatusConflict }})
		target.ReusedStatus = http.StatusConflict
		Run(t, target)
	})
	t.Run("a slow handler under a lease, and effects that are told", func(t *testing.T) {
		t.Parallel()
		all := newService(t, "pipelined").start(t, fault{})
		Run(t, Target{
			URL: all.URL, Create: all.Create, ChangedBody: all.ChangedBody, Slow: all.Leased, SlowLeased: true, Answers: all.Answers,
			EffectsAt: &Count{Request: Request{Path: "/count"}, Pointer: "/payments/0/committed"},
		})
	})
}

func TestNumberAt(t *testing.T) {
	for pointer, want := range map[string]int{"/a/0/b~1c": 7, "/d": 1, "/a/1": 0, "/a/x": 0, "/no": 0, "d": 0, "/d/e": 0} {
		n, err := numberAt(`{"a": [{"b/c": 7}], "d": 1}`, pointer)
		require.Equal(t, want, n, pointer)
		require.Equal(t, want == 0, err != nil, pointer)
	}
	_, err := numberAt("", "/a")
	require.Error(t, err)
}

// broken is a service that must not pass a row.
type broken struct {
	name  string
	fault fault
	// says is part of the complaint.
	says string
}

// serve serves it. The target's patience is less where the complaint is that something never came: all others wait for what comes, at
// times late.
func (b broken) serve(t *testing.T, s *service) Target {
	t.Helper()
	target := s.start(t, b.fault)
	for _, never := range []string{"never came true", "one waited for the other", "the connection stays open"} {
		if strings.Contains(b.says, never) {
			target.Patience = 1500 * time.Millisecond
		}
	}
	return target
}

func brokenServices() map[string][]broken {
	all := map[string][]broken{}
	for _, some := range []map[string][]broken{
		brokenAnswers(), brokenKeys(), brokenScopes(), brokenContents(), brokenFlights(), brokenStatuses(), brokenFailures(), brokenPages(),
		brokenCompressions(),
	} {
		maps.Copy(all, some)
	}
	return all
}

// Each row fails for each service that breaks its rule, and for the reason that is expected.
func TestBrokenServicesFail(t *testing.T) {
	t.Parallel()
	all := brokenServices()
	const rows = 4 // at once, each with tables of its own, because it counts what was committed in them
	services := make(chan *service, rows)
	for range rows {
		services <- newService(t, "pipelined")
	}
	for _, c := range cases() {
		t.Run(c.promise, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, all[c.promise], "there is no service that fails this row")
			s := <-services
			t.Cleanup(func() { services <- s })
			for _, b := range all[c.promise] {
				t.Run(b.name, func(t *testing.T) {
					require.NotEmpty(t, b.says)
					said := ""
					// A client that goes away may have been answered just before, and clients at once may have come one by one. Then
					// nothing was wrong.
					await.True(t, func() bool {
						said = watch(t, b.serve(t, s), c)
						return said != ""
					}, "a complaint: %s", b.says)
					require.Contains(t, said, b.says)
				})
			}
		})
	}
}

func TestEveryBrokenServiceHasItsRow(t *testing.T) {
	promises := map[string]bool{}
	for _, c := range cases() {
		promises[c.promise] = true
	}
	for promise := range brokenServices() {
		require.True(t, promises[promise], "there is no row %q", promise)
	}
}
