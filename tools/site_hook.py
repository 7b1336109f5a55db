"""What mkdocs calls while it builds the site: the navigation from the pages that are there, and llms.txt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

FIRST = {'Start': ['README.md', 'get-started.md', 'tutorial/first-evening.md', 'coming-from.md', 'gallery.md']}
FOLDERS = {'How to': 'how-to', 'Concepts': 'concepts', 'Reference': 'reference', 'Examples': 'examples'}


def on_config(config: Any) -> Any:
    config['nav'] = navigation(Path(config['docs_dir']))
    return config


def navigation(docs: Path) -> list[dict[str, Any]]:
    """Every page once: the first ones by hand, the rest by folder and title."""
    sections = dict(FIRST)
    for title, folder in FOLDERS.items():
        pages = sorted((docs / folder).glob('*.md'), key=lambda page: page_title(page).lower())
        sections[title] = [str(page.relative_to(docs)) for page in pages]
    return [{title: [{page_title(docs / path): path} for path in paths]} for title, paths in sections.items()]


def page_title(page: Path) -> str:
    match = re.search(r'^# (.+)$', page.read_text(encoding='utf-8'), flags=re.MULTILINE)
    return match.group(1).replace('`', '') if match else page.stem


def on_post_build(config: Any) -> None:
    docs = Path(config['docs_dir'])
    (Path(config['site_dir']) / 'llms.txt').write_text(llms_text(docs, config['site_description']), encoding='utf-8')


def llms_text(docs: Path, description: str) -> str:
    """The list of pages that language models read first (llmstxt.org): every page with its first sentence."""
    lines = ['# robotrials', '', f'> {description}', '']
    for section in navigation(docs):
        for title, pages in section.items():
            lines += [f'## {title}', '']
            for page in pages:
                for name, path in page.items():
                    lines.append(f'- [{name}]({address(path)}): {first_sentence(docs / path)}')
            lines.append('')
    return '\n'.join(lines)


def address(path: str) -> str:
    return re.sub(r'README\.md$', 'index.html', path) if path.endswith('README.md') else re.sub(r'md$', 'html', path)


def first_sentence(page: Path) -> str:
    """The first sentence of the page's first paragraph of prose, without its links and marks."""
    for paragraph in page.read_text(encoding='utf-8').split('\n\n'):
        text = ' '.join(line for line in paragraph.splitlines() if not line.startswith('#')).strip()
        if text and not text.startswith(('|', '```', '![', '<', '- ', '>', '[!')):
            plain = re.sub(r'!?\[([^\]]*)\]\([^)]*\)', r'\1', text).replace('**', '').replace('`', '')
            return re.split(r'(?<=[.!?])\s', plain)[0]
    return page_title(page)
