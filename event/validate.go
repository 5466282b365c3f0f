package event

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxIdentifier is the length of the longest identifier, in bytes.
	MaxIdentifier = 255
	// MaxMetadata is how many bytes all keys and values of a [Metadata] may have together. Brokers count them into the size of a message.
	MaxMetadata = 64 << 10
)

// ErrInvalid matches every [*InvalidError] in errors.Is.
var ErrInvalid = errors.New("event: invalid envelope")

// InvalidError names a field of an envelope that was refused. Nothing of the envelope was stored.
type InvalidError struct {
	// Field is the field of [Envelope], or the name of another part that was refused.
	Field string
	// Reason is what is wrong with it.
	Reason string
}

func (e *InvalidError) Error() string { return "event: " + e.Field + " " + e.Reason }

// Is makes errors.Is(err, [ErrInvalid]) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// ValidateIdentifier checks one identifier; "" is valid. It must be UTF-8 of at most [MaxIdentifier] bytes, without control characters: PostgreSQL
// refuses NUL, and encoders that replace invalid bytes would make different identifiers equal.
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

// ValidateTopic checks the name of a topic by the rules for every broker. It is an identifier ([ValidateIdentifier]) and not empty. It is not a path
// ("/", "%", "..", "."), because it must not choose the broker's tenant or namespace. It does not begin or end with a blank, which nobody would see.
// A broker may have further rules, see messaging.Naming.
func ValidateTopic(name string) error {
	const field = "Topic"
	switch {
	case name == "":
		return &InvalidError{field, "is empty"}
	case strings.ContainsAny(name, "/%") || strings.Contains(name, ".."):
		return &InvalidError{field, `must not contain "/", "%" or ".."`}
	case name == ".":
		return &InvalidError{field, `must not be "."`}
	}
	if err := ValidateIdentifier(field, name); err != nil {
		return err
	}
	if strings.TrimSpace(name) != name {
		return &InvalidError{field, fmt.Sprintf("%q begins or ends with a blank", name)}
	}
	return nil
}

// Validate checks an envelope before it is stored. Id, type, source, tenant and topic are required. Every identifier must pass [ValidateIdentifier],
// and the topic [ValidateTopic]. An aggregate needs both type and id. Times and numbers must fit their columns. It returns all violations, joined.
func (e *Envelope) Validate() error {
	errs := make([]error, 0, 20) // on the stack: each event is validated
	for _, f := range []struct {
		name, value string
		required    bool
	}{
		{"ID", e.ID, true},
		{"Type", e.Type, true},
		{"Source", e.Source, true},
		{"TenantID", e.TenantID, true},
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
		} else if err := ValidateIdentifier(f.name, f.value); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs,
		ValidateTopic(e.Topic),
		validateTime("OccurredAt", e.OccurredAt, true),
		validateTime("Delivery.NotBefore", e.Delivery.NotBefore, false),
		validateTime("Delivery.ExpiresAt", e.Delivery.ExpiresAt, false),
		e.Delivery.validateDelay(),
		validateNumber("AggregateVersion", e.AggregateVersion, math.MaxInt64),
		validateNumber("SchemaVersion", int64(e.SchemaVersion), math.MaxInt32),
		validateNumber("Delivery.MaxAttempts", int64(e.Delivery.MaxAttempts), math.MaxInt16),
		e.Metadata.validate(),
	)...)
}

// validateTime checks that RFC 3339, the format of times at the broker, can express t: the year has four digits.
func validateTime(field string, t time.Time, required bool) error {
	switch year := t.UTC().Year(); {
	case required && t.IsZero():
		return &InvalidError{field, "is zero"}
	case year < 1 || year > 9999:
		return &InvalidError{field, fmt.Sprintf("is in the year %d", year)}
	default:
		return nil
	}
}

func (d *Delivery) validateDelay() error {
	switch {
	case d.Delay < 0:
		return &InvalidError{"Delivery.Delay", fmt.Sprintf("is %s, which lies in the past", d.Delay)}
	case d.Delay > 0 && !d.NotBefore.IsZero():
		return &InvalidError{"Delivery.Delay", "is set beside NotBefore: use WithDelay or WithNotBefore"}
	default:
		return nil
	}
}

func validateNumber(field string, n, most int64) error {
	if n < 0 || n > most {
		return &InvalidError{field, fmt.Sprintf("is %d, from 0 to %d are allowed", n, most)}
	}
	return nil
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
