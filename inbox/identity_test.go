package inbox

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
)

// The keys are stored: they must be the same in every release.
func TestMessageKeyIsFrozen(t *testing.T) {
	const v7 = "019aa3b5-ec00-7abc-8def-0123456789ab"
	require.Equal(t, v7, store.MessageKey("shop", v7).String())
	require.Equal(t, v7, store.MessageKey("other", v7).String())
	require.Equal(t, "ffaeb263-dc8b-82b9-851a-9ae87c666855", store.MessageKey("shop", "4711").String())
}

func TestOtherIDsAreHashedWithTheirSource(t *testing.T) {
	keys := map[uuid.UUID]bool{}
	for _, c := range []struct{ source, id string }{
		{"shop", "019aa3b5-ec00-7abc-8def-0123456789ab"}, // as it is
		{"shop", "019AA3B5-EC00-7ABC-8DEF-0123456789AB"},
		{"shop", "{019aa3b5-ec00-7abc-8def-0123456789ab}"},
		{"shop", "019aa3b5ec007abc8def0123456789ab"},
		{"shop", "019aa3b5-ec00-4abc-8def-0123456789ab"},
		{"shop", "019aa3b5-ec00-7abc-0def-0123456789ab"},
		{"shop", "4711"},
		{"sho", "p4711"},
		{"other", "4711"},
	} {
		key := store.MessageKey(c.source, c.id)
		require.False(t, keys[key], "%v: another one has this key", c)
		keys[key] = true
		if len(keys) > 1 {
			require.True(t, strings.HasPrefix(key.String(), "ff"), "beyond all days")
			require.EqualValues(t, 8, key.Version())
			require.Equal(t, uuid.RFC4122, key.Variant())
		}
	}
}

func TestIdentifierFitsWhateverComes(t *testing.T) {
	nightly.Check(t, 100, 10_000, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "long") {
			s = strings.Repeat(s+"é", 200)
		}
		require.NoError(t, event.ValidateIdentifier("s", store.Identifier(s)))
		if event.ValidateIdentifier("s", s) == nil {
			require.Equal(t, s, store.Identifier(s))
		}
		require.LessOrEqual(t, len(store.Cut(strings.ToValidUTF8(s, "?"), 9)), 9)
	})
}

func TestLockIsOfConsumerTenantAndKey(t *testing.T) {
	m := func(tenant, aggregate string) *messaging.Message {
		return messaging.NewMessage(event.Envelope{ID: "1", TenantID: tenant, AggregateType: "order", AggregateID: aggregate}, 1, nil)
	}
	locks := map[any]bool{}
	for _, id := range []store.Identity{
		store.Identify("a", m("t1", "1")), store.Identify("a", m("t1", "2")), store.Identify("a", m("t2", "1")),
		store.Identify("b", m("t1", "1")), store.Identify("a", m("", "1")),
	} {
		require.IsType(t, int64(0), id.Lock)
		locks[id.Lock] = true
	}
	require.Len(t, locks, 5)
	require.Equal(t, store.Identify("a", m("", "1")), store.Identify("a", m(DefaultTenantID, "1")))
	require.Nil(t, store.Identify("a", m("t1", "")).Lock)
}
