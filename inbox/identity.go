package inbox

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/messaging"
)

// DefaultTenant is the tenant of messages that name none. It is part of their key for ever, so it is no setting.
const DefaultTenant = "default"

// identity is the key of an entry, and the lock that goes with it.
type identity struct {
	key                      uuid.UUID
	consumer, tenant, source string
	ordering                 string // the ordering key, "" for a message without order
	lock                     any    // int64, or nil for a message without order
}

// identify returns the identity of a message whose identifiers are valid.
func identify(consumer string, m *messaging.Message) identity {
	id := identity{consumer: consumer, tenant: m.TenantID, source: m.Source}
	if id.tenant == "" {
		id.tenant = DefaultTenant
	}
	id.key = messageKey(m.Source, m.ID)
	named := *m
	named.TenantID = id.tenant
	if id.ordering = named.OrderingKey(); id.ordering != "" {
		id.lock = hash64(store.Family(consumer), id.ordering)
	}
	return id
}

// disordered is id without its order.
func (id identity) disordered() identity {
	id.ordering, id.lock = "", nil
	return id
}

// keyLock is what a parked message waits under: the lock of its ordering key. A message without order is a key of its own.
func (id identity) keyLock() int64 {
	if lock, ok := id.lock.(int64); ok {
		return lock
	}
	return hash64(store.Family(id.consumer), "", id.tenant, id.source, id.key.String())
}

func hash64(parts ...string) int64 {
	sum := digest(parts...)
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // any 64 bits will do
}

// messageKey is the id itself if it is a UUIDv7, which carries the day that entries are partitioned by. Other ids are
// hashed together with their source to a UUIDv8. Its first byte is ff: no UUIDv7 of the next 8,000 years begins so, so
// that no hash lies in the range of a day, whose end would be its own.
//
// A UUID in another spelling than the canonical one is hashed too: ids are compared as they are, not as what they mean.
func messageKey(source, id string) uuid.UUID {
	if len(id) == canonicalLength && !strings.ContainsAny(id, "ABCDEF") {
		if key, err := uuid.Parse(id); err == nil && key.Version() == 7 && key.Variant() == uuid.RFC4122 {
			return key
		}
	}
	return hashed(source, id)
}

// canonicalLength is that of the one spelling of a UUID that RFC 9562 has.
const canonicalLength = 36

func hashed(parts ...string) uuid.UUID {
	sum := digest(parts...)
	key := uuid.UUID(sum[:16])
	key[0] = 0xff
	key[6] = key[6]&0x0f | 0x80
	key[8] = key[8]&0x3f | 0x80
	return key
}

// digest hashes each part with its length before it, so that parts cannot borrow from each other.
func digest(parts ...string) [sha256.Size]byte {
	all := make([]byte, 0, 256) // on the stack, mostly
	for _, part := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(part)))
		all = append(all, part...)
	}
	return sha256.Sum256(all)
}

// validate checks what goes into keys, and what handlers are likely to put into SQL. The error quotes what it refuses.
func validate(m *messaging.Message) error {
	var errs []error
	for _, f := range []struct{ name, value string }{
		{"ID", m.ID}, {"Source", m.Source}, {"TenantID", m.TenantID}, {"Type", m.Type}, {"Topic", m.Topic},
		{"AggregateType", m.AggregateType}, {"AggregateID", m.AggregateID}, {"SchemaID", m.SchemaID}, {"OrderingKey", m.Delivery.OrderingKey},
	} {
		if err := event.ValidateIdentifier(f.name, f.value); err != nil {
			errs = append(errs, fmt.Errorf("%w: %.300q", err, f.value))
		}
	}
	return errors.Join(errs...)
}

// identifyInvalid returns the identity of a message with an identifier that is none. What makes it different from others
// is in the hash, byte for byte, because the names that can be stored may be equal. It has no order: a name that is none
// does not say what it belongs to, and nothing must wait for it.
func identifyInvalid(consumer string, m *messaging.Message) identity {
	id := identify(consumer, m).disordered()
	id.key = hashed(m.TenantID, m.Source, m.ID)
	id.tenant, id.source = identifier(id.tenant), identifier(id.source)
	return id
}

// identifier turns any bytes into something that PostgreSQL takes and that people can read.
func identifier(s string) string { return cut(readable(s), event.MaxIdentifier) }

// isReadable says that readable keeps s.
func isReadable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

func readable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// cut returns at most limit bytes of s, without half a character at the end.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
