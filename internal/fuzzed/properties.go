// Package fuzzed makes the properties of a message out of the bytes that a fuzzer changes. It is for tests.
package fuzzed

import "encoding/binary"

// Properties reads names and values from bytes: each is a length and as many bytes, or what is left.
func Properties(data []byte) map[string]string {
	next := func() string {
		if len(data) < 2 {
			data = nil
			return ""
		}
		n := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
		s := string(data[2 : 2+n])
		data = data[2+n:]
		return s
	}
	props := map[string]string{}
	for len(data) > 0 {
		name := next()
		props[name] = next()
	}
	return props
}

// Bytes returns the bytes that Properties reads these names and values from.
func Bytes(pairs ...string) (data []byte) {
	for _, s := range pairs {
		data = binary.BigEndian.AppendUint16(data, uint16(len(s))) //nolint:gosec // the texts of tests are short
		data = append(data, s...)
	}
	return data
}
