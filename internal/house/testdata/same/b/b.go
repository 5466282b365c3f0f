package b

import "fmt"

// total stands in another package.
func total(rows []int) int {
	fmt.Println("once")
	n := 0
	limit := 7
	for _, row := range rows {
		// the large ones

		if row > limit {
			n += row
			continue
		}
		n++
	}
	return n
}
