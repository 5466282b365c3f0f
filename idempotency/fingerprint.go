package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
)

// Fingerprint distinguishes different requests with the same key.
type Fingerprint struct {
	// Tag names how the sum was made. Sums with different tags cannot be compared, so they count as equal: a deployment that changes the tag must not
	// refuse the retries that it causes.
	Tag string
	// Sum is the SHA-256 of the request's parts.
	Sum [sha256.Size]byte
}

// NewFingerprint hashes the parts of a request, each with its length. tag names which parts there are and how they were normalized; change it
// whenever that changes.
func NewFingerprint(tag string, parts ...[]byte) Fingerprint {
	f := Fingerprint{Tag: tag}
	h := sha256.New()
	var length [8]byte
	add := func(part []byte) {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		_, _ = h.Write(length[:]) // a hash never fails
		_, _ = h.Write(part)
	}
	add([]byte(tag))
	for _, part := range parts {
		add(part)
	}
	h.Sum(f.Sum[:0])
	return f
}

// differs reports whether the fingerprints belong to different requests.
func (f Fingerprint) differs(other Fingerprint) bool { return f.Tag == other.Tag && f.Sum != other.Sum }
