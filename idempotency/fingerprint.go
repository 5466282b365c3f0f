package idempotency

import "crypto/sha256"

// Fingerprint tells requests with the same key apart.
type Fingerprint struct {
	// Tag names how the sum was made. Sums with different tags are not compared: they tell nothing about each other, and
	// a deployment that changes the tag must not refuse the retries that it causes.
	Tag string
	// Sum is the SHA-256 of the request's parts.
	Sum [sha256.Size]byte
}

// NewFingerprint hashes the parts of a request, each with its length. tag names what the parts are and how they were
// brought into one form; change it whenever that changes.
func NewFingerprint(tag string, parts ...[]byte) Fingerprint {
	f := Fingerprint{Tag: tag}
	h := sha256.New()
	writePart(h, []byte(tag))
	for _, p := range parts {
		writePart(h, p)
	}
	h.Sum(f.Sum[:0])
	return f
}
