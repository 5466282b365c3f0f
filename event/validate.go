package event

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxIdentifier is the longest identifier, in bytes.
	MaxIdentifier = 255
	// MaxMetadata is the most that keys and values of a [Metadata] may take together, in bytes. Brokers count them
	// into the size of a message.
	MaxMetadata = 64 << 10
)

// ErrInvalid is matched by every [*InvalidError].
var ErrInvalid = errors.New("event: invalid envelope")

// InvalidError says which field of an envelope was refused. Nothing of it was stored.
type InvalidError struct {
	Field  string
	Reason string
}

func (e *InvalidError) Error() string { return "event: " + e.Field + " " + e.Reason }

// Is makes errors.Is(err, [ErrInvalid]) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// ValidateIdentifier checks one identifier; "" is fine. It must be valid UTF-8 of at most [MaxIdentifier] bytes
// without control characters: PostgreSQL refuses NUL, and encoders that replace bad bytes would make two different
// identifiers one.
func ValidateIdentifier(field, s string) error {
	switch {
	case len(s) > MaxIdentifier:
		return &InvalidError{field, fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), MaxIdentifier)}
	case !utf8.ValidString(s):
		return &InvalidError{field, "is not valid UTF-8"}
	case strings.ContainsFunc(s, unicode.IsControl):
		return &InvalidError{field, "contains a NUL or another control character"}
	default:
		return nil
	}
}

// Validate checks the envelope as it is before it is stored: id, type, source, tenant and topic are required, every
// identifier passes [ValidateIdentifier], a topic has no path, and an aggregate has both type and id. It returns all
// violations, joined.
func (e *Envelope) Validate() error {
	var errs []error
	for _, f := range []struct {
		name, value string
		required    bool
	}{
		{"ID", e.ID, true},
		{"Type", e.Type, true},
		{"Source", e.Source, true},
		{"TenantID", e.TenantID, true},
		{"Topic", e.Topic, true},
		{"SchemaID", e.SchemaID, false},
		{"AggregateType", e.AggregateType, e.AggregateID != ""},
		{"AggregateID", e.AggregateID, e.AggregateType != ""},
		{"RoutingKey", e.RoutingKey, false},
		{"ContentType", e.ContentType, true},
		{"Delivery.OrderingKey", e.Delivery.OrderingKey, false},
		{"Delivery.DedupKey", e.Delivery.DedupKey, false},
	} {
		if f.required && f.value == "" {
			errs = append(errs, &InvalidError{f.name, "is empty"})
			continue
		}
		errs = append(errs, ValidateIdentifier(f.name, f.value))
	}
	// A logical topic may not choose the broker's tenant or namespace.
	if strings.ContainsAny(e.Topic, "/%") || strings.Contains(e.Topic, "..") {
		errs = append(errs, &InvalidError{"Topic", `must not contain "/", "%" or ".."`})
	}
	if e.OccurredAt.IsZero() {
		errs = append(errs, &InvalidError{"OccurredAt", "is zero"})
	}
	if e.AggregateVersion < 0 || e.SchemaVersion < 0 || e.Delivery.MaxAttempts < 0 {
		errs = append(errs, &InvalidError{"AggregateVersion, SchemaVersion and MaxAttempts", "must not be negative"})
	}
	return errors.Join(append(errs, e.Metadata.validate())...)
}

func (m Metadata) validate() error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		if k == "" {
			return &InvalidError{"Metadata", "has an empty key"}
		}
		if err := ValidateIdentifier("Metadata key", k); err != nil {
			return err
		}
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return &InvalidError{"Metadata[" + k + "]", "is not valid UTF-8 or contains a NUL"}
		}
	}
	if size > MaxMetadata {
		return &InvalidError{"Metadata", fmt.Sprintf("takes %d bytes, at most %d are allowed", size, MaxMetadata)}
	}
	return nil
}
