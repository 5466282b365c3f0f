package cause

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Place is where something fails. A consumer's place has no topic: its handler fails in the same way whichever topic a message came from. The relay's
// place has no consumer.
type Place struct {
	Consumer, Topic, Type string
}

// fingerprint is the number of bytes of a fingerprint. With 64 bits, two of a million causes share one with a probability of 1 to 37 million.
const fingerprint = 8

// Fingerprint returns the name of all failures at this place whose errors have the same cause: 16 hexadecimal digits, "" for an empty text. It is
// stored, so it does not depend on the process or the version of the program.
func (p Place) Fingerprint(text string) string {
	if text == "" {
		return ""
	}
	hash := sha256.New()
	// Each part comes after its length: no part can be mistaken for the end of another one.
	for _, part := range []string{p.Consumer, p.Topic, p.Type, Of(text)} {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(part))) // a hash returns no error
		hash.Write([]byte(part))
	}
	return hex.EncodeToString(hash.Sum(nil)[:fingerprint])
}
