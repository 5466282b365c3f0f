package inbox

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
)

// Whatever a message has in it, each form of its dead letter fits the columns of inbox_dead, and it has the same identity each
// time. That PostgreSQL takes them is messaging/pulsar.TestHostileMessagesStopNobody.
func FuzzStorableLetter(f *testing.F) {
	f.Add("4711", "order.placed", "shop", "t1", "order", "o1", "o1", "k", "v", []byte(`{}`), int64(1), int64(1), int64(0), "no")
	f.Add("\xff", "\x00", "s\x00", "Ж", strings.Repeat("x", 300), "\n", "\xff\x00", "", "\x00", []byte("\x00"),
		int64(math.MaxInt64), int64(math.MinInt64), int64(math.MaxInt64), "a\x00\xff")
	f.Fuzz(func(t *testing.T, id, kind, source, tenant, aggregateType, aggregate, routing, key, value string, payload []byte,
		version, sequence, at int64, cause string,
	) {
		m := messaging.NewMessage(event.Envelope{
			ID: id, Type: kind, Source: source, TenantID: tenant, SchemaID: value, SchemaVersion: int(version), Topic: kind, ContentType: value,
			AggregateType: aggregateType, AggregateID: aggregate, RoutingKey: routing, AggregateVersion: sequence, Sequence: version,
			OccurredAt: time.Unix(at/1000, at%1000), Metadata: event.Metadata{key: value}, Payload: payload,
		}, int(sequence), nil)
		of := func() store.Identity {
			if store.Validate(m) != nil {
				return store.IdentifyInvalid("billing", m)
			}
			return store.Identify("billing", m)
		}
		first := of()
		require.Equal(t, first, of())
		seen := map[string]bool{}
		for _, l := range reductions(letter{id: of(), m: m}) {
			reason := pgsql.CleanText(l.refusal(errors.New(cause), errors.New(value)).Error())
			require.LessOrEqual(t, len(reason), pgsql.MaxText)
			require.True(t, utf8.ValidString(reason))
			require.NotContains(t, reason, "\x00")
			args := store.MessageArgs(l.id, l.m)
			requireColumns(t, args)
			if l.reduced {
				require.LessOrEqual(t, len(l.m.Payload), keptPayload)
				require.Error(t, messaging.Unreadable(l.m), "a replay does not have a part of a message handled")
			} else {
				require.Equal(t, string(m.Payload), string(args[len(args)-1].([]byte)))
			}
			seen[l.id.Key.String()] = true
		}
		require.Len(t, seen, 2, "the last form has a key of its own")
	})
}

// requireColumns demands that the values fit the types of the columns.
func requireColumns(t *testing.T, args []any) {
	t.Helper()
	names := strings.Split(store.Words()[1], ", ")
	require.Len(t, args, len(names))
	for n, arg := range args {
		switch v := arg.(type) {
		case string:
			require.True(t, utf8.ValidString(v), "%s: %q", names[n], v)
			require.NotContains(t, v, "\x00", names[n])
			switch names[n] {
			case "ordering_key", "routing_key", "content_type": // of any length
			case "event_metadata":
				require.True(t, json.Valid([]byte(v)))
			default:
				require.LessOrEqual(t, len(v), event.MaxIdentifier, names[n])
			}
		case *time.Time:
			if v != nil {
				_, err := v.UTC().MarshalText()
				require.NoError(t, err)
			}
		case int:
			require.True(t, v >= 1 && v <= math.MaxInt32, "%s: %d", names[n], v)
		case int64, []byte:
		default:
			require.Fail(t, "no column takes it", "%s: %T", names[n], arg)
		}
	}
}
