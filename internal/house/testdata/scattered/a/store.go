package a

type Store struct{}

type Small struct{}

func (Small) M1() {}
