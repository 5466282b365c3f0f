package event_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
)

func TestOrderingKey(t *testing.T) {
	aggregate := func(tenant, kind, id string) event.Envelope {
		return event.Envelope{TenantID: tenant, AggregateType: kind, AggregateID: id}
	}
	explicit := func(tenant, key string) event.Envelope {
		return event.Envelope{TenantID: tenant, Delivery: event.Delivery{OrderingKey: key}}
	}
	both := aggregate("t", "order", "1")
	both.Delivery.OrderingKey = "mine"
	for _, c := range []struct {
		name string
		env  event.Envelope
		want string
	}{
		{"aggregate", aggregate("t", "order", "1"), "t|order|1"},
		{"explicit", explicit("t", "mine"), "t|mine"},
		{"explicit wins", both, "t|mine"},
		{"unordered", event.Envelope{TenantID: "t"}, ""},
		{"separator in the tenant", aggregate("t|order", "1", "2"), `t\|order|1|2`},
		{"separator in the id", aggregate("t", "order", "1|2"), `t|order|1\|2`},
		{"escape in the type", aggregate("t", `order\`, "|1"), `t|order\\|\|1`},
		{"explicit that looks like an aggregate", explicit("t", "order|1"), `t|order\|1`},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.env.OrderingKey()) })
	}
}

// keyed is what an ordering key is made of.
type keyed struct {
	explicit          bool
	tenant, kind, key string
}

func drawKeyed(t *rapid.T, label string) keyed {
	part := rapid.StringOfN(rapid.RuneFrom([]rune(`ab|\`)), 1, 4, -1)
	k := keyed{
		explicit: rapid.Bool().Draw(t, label+" explicit"),
		tenant:   part.Draw(t, label+" tenant"),
		key:      part.Draw(t, label+" key"),
	}
	if !k.explicit {
		k.kind = part.Draw(t, label+" type")
	}
	return k
}

func (k keyed) orderingKey() string {
	env := event.Envelope{TenantID: k.tenant}
	if k.explicit {
		env.Delivery.OrderingKey = k.key
	} else {
		env.AggregateType, env.AggregateID = k.kind, k.key
	}
	return env.OrderingKey()
}

func TestDistinctPartsGiveDistinctOrderingKeys(t *testing.T) {
	nightly.Check(t, 100, 10_000, func(t *rapid.T) {
		a, b := drawKeyed(t, "a"), drawKeyed(t, "b")
		require.Equal(t, a == b, a.orderingKey() == b.orderingKey(), "%+v and %+v: %s", a, b, a.orderingKey())
	})
}

// One key must not be folded into another however the parts are cut, so a few thousand are compared with all others.
func TestAllShortPartsGiveDistinctOrderingKeys(t *testing.T) {
	parts := []string{"a"}
	for range 3 {
		for _, p := range parts {
			parts = append(parts, p+"|", p+`\`, "|"+p, `\`+p)
		}
	}
	seen := map[string]keyed{}
	for _, tenant := range parts[:20] {
		for _, key := range parts {
			for _, kind := range append([]string{""}, parts[:9]...) {
				k := keyed{explicit: kind == "", tenant: tenant, kind: kind, key: key}
				if other, taken := seen[k.orderingKey()]; taken && other != k {
					require.Equal(t, other, k, "both have the key %s", k.orderingKey())
				}
				seen[k.orderingKey()] = k
			}
		}
	}
}

func FuzzOrderingKey(f *testing.F) {
	f.Add("t", "order", "1", "t|order", "1", "")
	f.Add(`t\`, "o", "1", "t", `\|o`, "1")
	f.Fuzz(func(t *testing.T, tenantA, kindA, keyA, tenantB, kindB, keyB string) {
		a := keyed{kindA == "", tenantA, kindA, keyA}
		b := keyed{kindB == "", tenantB, kindB, keyB}
		if keyA == "" || keyB == "" || a == b {
			return
		}
		require.NotEqual(t, a.orderingKey(), b.orderingKey())
	})
}

func TestOptions(t *testing.T) {
	at := anEnvelope().OccurredAt
	shared := event.Metadata{"a": "1"}
	env := event.Envelope{Metadata: shared}
	for _, opt := range []event.AddOption{
		event.WithID("id"), event.WithType("type"), event.WithSchema("schema", 3), event.WithTenantID("tenant"),
		event.WithAggregate("order", "1", 7), event.WithOrderingKey("key"), event.WithRoutingKey("route"),
		event.WithContentType("text/plain"), event.WithHeader("b", "2"), event.WithNotBefore(at),
		event.WithExpiry(at.Add(1)), event.WithMaxAttempts(9),
	} {
		opt(&env)
	}
	require.Equal(t, event.Envelope{
		ID: "id", Type: "type", SchemaID: "schema", SchemaVersion: 3, TenantID: "tenant",
		AggregateType: "order", AggregateID: "1", AggregateVersion: 7, RoutingKey: "route", ContentType: "text/plain",
		Metadata: event.Metadata{"a": "1", "b": "2"},
		Delivery: event.Delivery{OrderingKey: "key", NotBefore: at, ExpiresAt: at.Add(1), MaxAttempts: 9},
	}, env)
	require.Equal(t, event.Metadata{"a": "1"}, shared, "a header must not appear in somebody else's metadata")
}
