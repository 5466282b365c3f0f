package messagingtest

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

// broken is an adapter that must not pass a case.
type broken struct {
	name  string
	fault fault
	// says is part of the complaint.
	says string
	// ordered: it is right for subscriptions without order.
	ordered bool
}

func brokenAdapters() map[string][]broken {
	all := map[string][]broken{}
	for _, some := range []map[string][]broken{
		brokenEnvelopes(), brokenPublishers(), brokenRefusals(), brokenReceivers(), brokenEnds(), brokenSubscriptions(), brokenServers(),
	} {
		maps.Copy(all, some)
	}
	return all
}

func TestSoundAdapterPasses(t *testing.T) {
	t.Parallel()
	Run(t, sound(nil))
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		RunKilled(t, sound(nil), 2)
	})
	// With as little as a harness can have.
	Run(t, Harness{
		Open:            func(*testing.T) Broker { return struct{ Broker }{memory.New(nil)} },
		MaxMessageBytes: -1,
	})
	for name, f := range others() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, sound(f))
		})
	}
}

// others are sound adapters of brokers that have less than others.
func others() map[string]*fault {
	return map[string]*fault{
		"one type": {types: []messaging.SubscriptionType{messaging.Failover}}, "forgets": {forgets: true}, "keeps": {keeps: true},
		"two names for one topic": refusesTwins(),
	}
}

// allCases returns the cases of all kinds of adapters.
func allCases() []testCase {
	cases := sound(nil).withDefaults().cases()
	for _, c := range sound(&fault{forgets: true}).withDefaults().cases() {
		if !slices.ContainsFunc(cases, func(known testCase) bool { return known.name() == c.name() }) {
			cases = append(cases, c)
		}
	}
	return append(cases, testCase{promise: "server is killed", run: testKilled(2)})
}

// Each case fails for each adapter that breaks its promise, and for the reason that is expected.
func TestBrokenAdaptersFail(t *testing.T) {
	all := brokenAdapters()
	for _, c := range allCases() {
		t.Run(c.name(), func(t *testing.T) {
			require.NotEmpty(t, all[c.promise], "there is no adapter that fails this case")
			for _, b := range all[c.promise] {
				if b.ordered && c.kind == messaging.Shared {
					continue
				}
				t.Run(b.name, func(t *testing.T) {
					t.Parallel()
					// Patience ends at once when nothing moves any more, and not before.
					synctest.Test(t, func(t *testing.T) { require.Contains(t, watch(t, sound(&b.fault), c), b.says) })
				})
			}
		})
	}
}

func TestEveryBrokenAdapterHasItsCase(t *testing.T) {
	promises := map[string]bool{}
	for _, c := range allCases() {
		promises[c.promise] = true
	}
	for promise := range brokenAdapters() {
		require.True(t, promises[promise], "there is no case %q", promise)
	}
}
