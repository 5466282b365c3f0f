package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// DefaultTenantID is the tenant of messages that name none.
const DefaultTenantID = "default"

// Identity identifies a message of a consumer, with its ordering key and the lock of that.
type Identity struct {
	Key                      uuid.UUID
	Consumer, Tenant, Source string
	Ordering                 string // the ordering key, "" for a message without order
	Lock                     any    // int64, or nil for a message without order
}

// Identify returns the identity of a message whose identifiers are valid.
func Identify(consumer string, m *messaging.Message) Identity {
	id := Identity{Consumer: consumer, Tenant: m.TenantID, Source: m.Source}
	if id.Tenant == "" {
		id.Tenant = DefaultTenantID
	}
	id.Key = MessageKey(m.Source, m.ID)
	named := *m
	named.TenantID = id.Tenant
	if id.Ordering = named.OrderingKey(); id.Ordering != "" {
		id.Lock = hash64(Family(consumer), id.Ordering)
	}
	return id
}

// Disordered returns id without its order.
func (id Identity) Disordered() Identity {
	id.Ordering, id.Lock = "", nil
	return id
}

// KeyLock returns the key under which the message is parked: the lock of its ordering key. A message without order has a key of its own.
func (id Identity) KeyLock() int64 {
	if lock, ok := id.Lock.(int64); ok {
		return lock
	}
	return hash64(Family(id.Consumer), "", id.Tenant, id.Source, id.Key.String())
}

// OutsideKey returns the idempotency key of a message, or of a step of it, for calls to other systems.
func (id Identity) OutsideKey(step ...string) string {
	sum := digest(append([]string{id.Consumer, id.Tenant, id.Source, id.Key.String()}, step...)...)
	return hex.EncodeToString(sum[:16])
}

// hash64 returns the number for an advisory lock. Two keys with one number wait for each other, which costs
// time and no correctness.
func hash64(parts ...string) int64 {
	sum := digest(parts...)
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // any 64 bits will do
}

// MessageKey returns the id itself if it is a UUIDv7, which contains the day by which entries are partitioned. Other ids are hashed
// together with their source to a UUIDv8. Its first byte is ff, with which no UUIDv7 of the next 8,000 years begins. So no hash falls into
// the partition of a day, with which it would be dropped too early.
//
// A UUID in another spelling than the canonical one is hashed too, because ids are compared byte by byte.
func MessageKey(source, id string) uuid.UUID {
	if len(id) == canonicalLength && !strings.ContainsAny(id, "ABCDEF") {
		if key, err := uuid.Parse(id); err == nil && key.Version() == 7 && key.Variant() == uuid.RFC4122 {
			return key
		}
	}
	return Hashed(source, id)
}

// canonicalLength is the length of a UUID in the spelling of RFC 9562.
const canonicalLength = 36

// Hashed makes a UUIDv8 (RFC 9562, section 5.8) of a hash. Its first byte ff keeps it out of the daily
// partitions, see MessageKey.
func Hashed(parts ...string) uuid.UUID {
	sum := digest(parts...)
	key := uuid.UUID(sum[:16])
	key[0] = 0xff
	key[6] = key[6]&0x0f | 0x80
	key[8] = key[8]&0x3f | 0x80
	return key
}

// digest hashes each part after its length, so that ("ab", "c") and ("a", "bc") have different hashes.
func digest(parts ...string) [sha256.Size]byte {
	all := make([]byte, 0, 256) // long enough for most ids, so it stays on the stack
	for _, part := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(part)))
		all = append(all, part...)
	}
	return sha256.Sum256(all)
}

// Validate checks the fields that are part of keys, and the fields that handlers are likely to put into SQL. The error quotes the refused
// text.
func Validate(m *messaging.Message) error {
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

// IdentifyInvalid returns the identity of a message with an invalid identifier. The hash covers the original bytes, because two invalid
// names may be equal after they were made storable. The message has no order: an invalid name says nothing about its key, and no other
// message may wait for it.
func IdentifyInvalid(consumer string, m *messaging.Message) Identity {
	id := Identify(consumer, m).Disordered()
	id.Key = Hashed(m.TenantID, m.Source, m.ID)
	id.Tenant, id.Source = Identifier(id.Tenant), Identifier(id.Source)
	return id
}

// Identifier turns any bytes into a text that PostgreSQL accepts and people can read.
func Identifier(s string) string { return Cut(readable(s), event.MaxIdentifier) }

// isReadable reports whether readable leaves s unchanged.
func isReadable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

// readable replaces what PostgreSQL's text cannot hold, such as NUL, and what a terminal would obey.
func readable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// Cut returns at most limit bytes of s, without half a character at the end.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
